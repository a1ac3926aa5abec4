import { spawn } from 'node:child_process';
import { once } from 'node:events';
import t, { type Test } from 'tap';
import { openStore } from '../../../src/core/storage/open.js';
import { setupCollection } from '../../../src/idp/provisioning/first-operator.js';
import { principalCollection } from '../../../src/idp/provisioning/store.js';
import { mailCollection } from '../../../src/shared/email/store.js';
import { type Mongod, onOwnMongod } from '../../core/storage/mongod.js';
import { Agent } from '../../kit/agent.js';
import { PASSWORD } from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { idpApp } from '../../kit/idp.js';
import { compiled } from '../../kit/process.js';
import { temporaryFolder } from '../../kit/tmp.js';

/** kill -9 of a process that accepts an invitation, makes the first operator or signs a person up. */

/** What a process does, and what to ask afterwards: whether it has taken effect. */
interface Killed {
  work: object;
  isDone(): Promise<boolean>;
}

/** Runs a process once for each of its calls to the store, at which it is killed. Both outcomes must occur. */
async function killAtEachCall(
  t: Test,
  uri: string,
  moments: readonly string[],
  prepare: (name: string) => Promise<Killed>,
) {
  const outcomes = new Set<string>();
  for (const moment of moments) {
    let hasEnded = false;
    for (let step = 1; !hasEnded; step++) {
      const { work, isDone } = await prepare(`${moment}-${step}`);
      const worker = compiled('test/idp/provisioning/kill-worker.js');
      const args = [worker, uri, String(step), moment, JSON.stringify(work)];
      const child = spawn(process.execPath, args, { stdio: ['ignore', 'inherit', 'inherit'] });
      const [code, signal] = await once(child, 'exit');
      hasEnded = code === 0;
      if (!hasEnded) t.equal(signal, 'SIGKILL', `${moment} call ${step}`);
      outcomes.add(`${moment} ${await isDone()}`);
      if (step > 40) throw new Error('it never comes to an end');
    }
  }
  t.equal(outcomes.size, 2 * moments.length, 'both outcomes are seen');
}

/** The transaction of a killed process holds its documents until the server ends it. */
async function untilAnswered<A extends { status: number }>(request: () => Promise<A>): Promise<A> {
  for (;;) {
    const answer = await request();
    if (answer.status !== 503) return answer;
  }
}

/** After a second instead of a minute. */
async function endAbandonedTransactions(server: Mongod): Promise<void> {
  const admin = server.client(t).db('admin');
  await admin.command({ setParameter: 1, transactionLifetimeLimitSeconds: 1 });
}

/** With the time of the workers. The port is closed, so that the mails stay in the store. */
async function start(t: Test, uri: string) {
  const clock = fakeClock(Date.now());
  const idp = await idpApp(t, {
    ...{ publicUrl: undefined, databaseUri: uri, clock, limits: false, emailSmtpUrl: 'smtp://127.0.0.1:9' },
  });
  const store = await openStore(uri);
  t.teardown(() => store.close());
  return { idp, store, principals: principalCollection(store) };
}

/**
 * The outcome is that of another request: writes of a killed process may still reach the server.
 *
 * @param moments of each call of the store at which a process is killed
 */
function forEngine(engine: string, fresh: (t: Test) => string, moments: readonly string[]): void {
  t.test(`${engine}: an acceptance killed at any call is complete or absent`, async (t) => {
    const uri = fresh(t);
    const { idp, principals } = await start(t, uri);
    const client = await idp.createClient();
    await killAtEachCall(t, uri, moments, async (name) => {
      const handle = `${name}-ada@example.test`;
      const { body } = await idp.admin('POST', '/v1/invites', { handle });
      const token = body.invite_url.split('/').at(-1);
      return {
        work: { accept: token, password: PASSWORD },
        async isDone() {
          const { state, linkHash, passwordHash } = (await principals.findOne({ handle })) ?? {};
          if (state === 'active') t.match([linkHash, typeof passwordHash], [undefined, 'string']);
          else t.match([state, typeof linkHash, passwordHash], ['invited', 'string', undefined]);
          const body = { password: `${PASSWORD}!` };
          const again = await untilAnswered(() => idp.request('POST', `/invite/${token}`, { body }));
          const first = await idp.authorize(client, { sub: '', handle, password: PASSWORD });
          const second = await idp.authorize(client, { sub: '', handle, password: `${PASSWORD}!` });
          const isUsed = again.status === 410;
          t.same(
            [again.status, first.status, second.status],
            isUsed ? [410, 302, 401] : [201, 401, 302],
            `${name}: ${isUsed ? 'active' : 'unused'}`,
          );
          return isUsed;
        },
      };
    });
  });

  t.test(
    `${engine}: a use of the link of the first operator killed at any call is complete or absent`,
    async (t) => {
      const uri = fresh(t);
      const { idp, store, principals } = await start(t, uri);
      await killAtEachCall(t, uri, moments, async (name) => {
        // An empty store again.
        await principals.deleteMany({ id: { gte: ' ' } });
        await setupCollection(store).deleteMany({ id: 'first-operator' });
        const link = await idp.server.fastify.idp.createFirstOperatorLink();
        const path = new URL(link?.url ?? '').pathname;
        return {
          work: { accept: path.split('/').at(-1), password: PASSWORD, handle: 'ada' },
          async isDone() {
            const body = { handle: 'bob', password: `${PASSWORD}!` };
            const { status } = await untilAnswered(() => idp.request('POST', path, { body }));
            const { items } = await principals.page({ sort: 'id', limit: 10 });
            t.same(
              items.map(({ handle, operatorSince }) => [handle, operatorSince !== undefined]),
              [[status === 410 ? 'ada' : 'bob', true]],
              `${name}: ${status}`,
            );
            return status === 410;
          },
        };
      });
    },
  );

  t.test(`${engine}: a sign-up killed at any call is complete when the form is sent again`, async (t) => {
    const uri = fresh(t);
    const { idp, store, principals } = await start(t, uri);
    const origin = await idp.listen();
    const linksTo = async (userId: string) => {
      const { items } = await mailCollection(store).page({ where: { userId }, sort: 'id', limit: 10 });
      return items.filter(({ template }) => template === 'verify-email').length;
    };
    await killAtEachCall(t, uri, moments, async (number) => {
      const handle = `${number}-ada@example.test`;
      const fields = { handle, name: 'The second', password: PASSWORD, password_confirm: PASSWORD };
      return {
        work: { handle, name: 'The first', password: PASSWORD },
        async isDone() {
          const browser = new Agent({ origin });
          const form = await browser.open(`${origin}/account/sign-up`);
          const page = await untilAnswered(() => browser.submit(form, fields));
          t.match([page.status, page.url], [200, /\/account$/], 'the person is signed in');
          const { id = '', name } = (await principals.findOne({ handle })) ?? {};
          t.equal(await linksTo(id), 1, 'there is a link for the address');
          return name === 'The first';
        },
      };
    });
  });
}

// `npm run test:kills` runs both moments.
const MOMENTS = process.env['KILL_ROUNDS'] === undefined ? ['during'] : ['before', 'during'];
forEngine('SQLite', (t) => `sqlite:${temporaryFolder(t)}/idp.db`, MOMENTS);
await onOwnMongod((server) => {
  t.before(() => endAbandonedTransactions(server));
  forEngine('MongoDB', (t) => server.fresh(t), MOMENTS);
});

import t from 'tap';
import { lastDays } from '../../../src/core/kernel/clock.js';
import { auditCollection, createAudit } from '../../../src/core/ops/audit.js';
import { createSignInDays } from '../../../src/idp/console/sign-in-days.js';
import { openAt } from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { storeIn } from '../../kit/engine.js';
import { countedRandom } from '../../kit/random.js';
import { temporaryFolder } from '../../kit/tmp.js';

/** The sign-ins of each day are counted once, however many processes count. */

const DAY = 86_400_000;

t.test(
  'each sign-in is counted once by several processes, and nothing before the first record',
  async (t) => {
    const uri = storeIn(temporaryFolder(t), 'idp');
    const clock = fakeClock();
    const stores = [await openAt(t, uri), await openAt(t, uri), await openAt(t, uri)] as const;
    const log = { error: (problem: unknown) => t.fail(String(problem)) };
    const audit = createAudit(stores[0], { clock, random: countedRandom(), log });
    const sign = async (event: string, count: number) => {
      for (let index = 0; index < count; index++) await audit.record({ event, ip: '192.0.2.1' });
    };
    const counters = stores.map((store) => createSignInDays({ store, clock }, auditCollection(store)));
    const read = async () => (await Promise.all(counters.map(({ read }) => read(lastDays(clock, 3)))))[0];
    await sign('login.succeeded', 1200);
    await sign('login.failed', 3);
    await sign('principal.created', 5);
    clock.advance(DAY);
    await sign('login.succeeded', 700);
    clock.advance(61_000);
    await read();
    t.same(
      (await read())?.map((counted) => counted && [counted.succeeded, counted.failed]),
      [null, [1200, 3], [700, 0]],
    );
    await sign('login.succeeded', 1);
    t.equal((await read())?.at(-1)?.succeeded, 700, 'a record of this moment may have others before it');
    clock.advance(61_000);
    await read();
    t.equal((await read())?.at(-1)?.succeeded, 701);
  },
);

import { spawnSync } from 'node:child_process';
import t, { type Test } from 'tap';
import { openStore } from '../../../src/core/storage/open.js';
import { deliveryCollection, intentCollection } from '../../../src/saas/webhooks/store.js';
import { onMongod } from '../../core/storage/mongod.js';
import { countCalls } from '../../kit/killed-at.js';
import { compiled } from '../../kit/process.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { accountsOn, prepare, recover, WORKS, type Work } from './killed-works.js';

/** kill -9 at every call to the store: an event is delivered if its change was made, and only then. */

/** Each moment with `npm run test:kills`; otherwise every third one. */
const EVERY = process.env['KILL_ROUNDS'] === undefined ? 3 : 1;

async function killedOnce(uri: string, name: string, work: Work, step: number, moment: string) {
  const store = await openStore(uri);
  await prepare(store);
  await store.close();
  const args = [compiled('test/saas/webhooks/kill-worker.js'), uri, String(step), moment, name];
  const { signal, stderr, status } = spawnSync(process.execPath, args, { encoding: 'utf8' });
  if (status === 1) throw new Error(stderr);
  const after = await openStore(uri);
  try {
    await recover(after);
    const [deliveries, intents] = [deliveryCollection(after), intentCollection(after)];
    const { items } = await deliveries.page({ sort: 'createdAt', limit: 100 });
    const sent = items.map(({ event }) => event).filter((event) => work.events.includes(event));
    return { signal, sent: sent.sort(), wasMade: await work.wasMade(after), left: await intents.count() };
  } finally {
    await after.close();
  }
}

function forEngine(engine: string, fresh: (t: Test) => string): void {
  for (const [name, work] of Object.entries(WORKS)) {
    t.test(`${engine}: ${name} that is killed at any moment loses no event, and invents none`, async (t) => {
      const store = await openStore(fresh(t));
      if (work.needsAtomicStore && !store.isAtomic) {
        await store.close();
        return;
      }
      await prepare(store);
      const calls = await countCalls(store, async (counted) => work.run(await accountsOn(counted)));
      t.ok(await work.wasMade(store));
      await store.close();
      for (let step = 1; step <= calls; step++) {
        for (const [index, moment] of ['before', 'during'].entries()) {
          if ((step * 2 + index) % EVERY !== 0) continue;
          const { signal, sent, wasMade, left } = await killedOnce(fresh(t), name, work, step, moment);
          const where = `killed ${moment} call ${step} of ${calls}`;
          if (step < calls) t.equal(signal, 'SIGKILL', where);
          t.same(sent, wasMade ? work.events : [], where);
          t.equal(left, 0, where);
        }
      }
    });
  }
}

forEngine('SQLite', (t) => `sqlite:${temporaryFolder(t)}/saas.db`);
await onMongod((server) => forEngine('MongoDB', (t) => server.fresh(t)));

import { join } from 'node:path';
import t, { type Test } from 'tap';
import {
  createJobs,
  LEASE_COLLECTION,
  LEASE_FIELDS,
  type LeaseDocument,
} from '../../../src/core/ops/jobs.js';
import { openStore } from '../../../src/core/storage/open.js';
import { openAt, saasApp } from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { idpApp } from '../../kit/idp.js';
import { countedRandom } from '../../kit/random.js';
import { temporaryFolder } from '../../kit/tmp.js';

/** A scheduler runs the jobs instead of timers. */

const SECRET = 'scheduler-Wq8ZsT1mXe6YbN0cRj4HuPd9';

const PRODUCTS = {
  'saas-backend': { path: '/api/cron', open: (t: Test, options: object) => saasApp(t, options) },
  idp: { path: '/cron', open: (t: Test, options: object) => idpApp(t, options) },
};

for (const [product, { path, open }] of Object.entries(PRODUCTS)) {
  t.test(`${product}: with the secret of the scheduler, jobs run when it calls, and only then`, async (t) => {
    const app = await open(t, { cronSecret: SECRET });
    const call = (method: string, token?: string) => app.request(method, path, { ...(token && { token }) });
    const store = await openAt(t, app.databaseUri);
    const leases = async () => {
      const { items } = await store
        .collection<LeaseDocument>(LEASE_COLLECTION, LEASE_FIELDS)
        .page({ sort: 'id', limit: 99 });
      // The claim of the store is one, too.
      return items.map(({ id }) => id).filter((id) => id !== 'product');
    };
    t.same(await leases(), [], 'no timer has run one');
    for (const token of [undefined, `${SECRET}x`]) {
      const { status, headers } = await call('POST', token);
      t.match([status, headers['www-authenticate']], [401, 'Bearer realm="cron"']);
    }
    t.same(await leases(), []);
    for (const method of ['GET', 'POST']) t.equal((await call(method, SECRET)).status, 204);
    const run = await leases();
    t.ok(run.includes('audit-purge') && run.includes('throttle-purge'), run.join(' '));
  });

  t.test(`${product}: without a secret there is no such route`, async (t) => {
    const app = await open(t, {});
    t.equal((await app.request('POST', path)).status, 404);
  });
}

t.test('those that are due run once, and failures are named', async (t) => {
  const clock = fakeClock();
  const store = await openStore(`sqlite:${join(temporaryFolder(t), 'jobs.db')}`);
  t.teardown(() => store.close());
  const quiet = { info() {}, warn() {}, error() {} } as never;
  const jobs = createJobs(store, { clock, random: countedRandom('cron'), log: quiet });
  const run: string[] = [];
  jobs.add('hourly', { everySeconds: 3600, run: async () => void run.push('hourly') });
  jobs.add('broken', {
    everySeconds: 60,
    async run() {
      run.push('broken');
      throw new Error('no');
    },
  });
  t.same(await jobs.runDue(), ['broken']);
  t.same(await jobs.runDue(), ['broken'], 'a failed job stays due');
  t.same(run, ['hourly', 'broken', 'broken']);
  clock.advance(3_600_000);
  await jobs.runDue();
  t.same(run.slice(3).sort(), ['broken', 'hourly']);
});

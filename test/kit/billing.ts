import type { Clock } from '../../src/core/kernel/clock.js';
import { createBackgroundTasks } from '../../src/core/ops/background-tasks.js';
import { createCommit } from '../../src/core/ops/commit.js';
import type { Job } from '../../src/core/ops/jobs.js';
import { createAccountData } from '../../src/core/server/contributions.js';
import type { Store } from '../../src/core/storage/collection.js';
import { userCollection } from '../../src/saas/auth/store.js';
import type { BillingModuleOptions } from '../../src/saas/billing/context.js';
import { type BillingModule, createBillingModule } from '../../src/saas/billing/module.js';
import { billingOwners } from '../../src/saas/billing-owners.js';
import { organizationCollections } from '../../src/saas/organizations/store.js';
import { NO_EFFECT, SILENT_AUDIT } from './effects.js';
import { committing } from './events.js';
import { countedRandom } from './random.js';

/** Billing without HTTP, with its jobs, which run only on request. */
export interface TestBilling extends BillingModule {
  /** `profiles` and `recovery` are absent without an API key. */
  jobs: { reconcile: Job; retryUnmatched: Job; purge: Job; profiles?: Job; recovery?: Job; seats?: Job };
  /** Absent without an API key. */
  sendUsage: Job | undefined;
  purgeUsage: Job | undefined;
}

export function billingOn(
  store: Store,
  clock: Clock,
  { config, ...options }: Partial<Omit<BillingModuleOptions, 'users'>>,
): TestBilling {
  const jobs = new Map<string, Job>();
  const billing = createBillingModule(
    {
      store,
      commit: createCommit(store),
      clock,
      random: countedRandom(),
      log: { info() {}, warn() {}, error() {} } as never,
      audit: SILENT_AUDIT as never,
      jobs: { add: (name: string, job: Job) => void jobs.set(name, job) } as never,
      accountData: createAccountData(),
      throttle: { countKey: async () => undefined } as never,
      backgroundTasks: createBackgroundTasks({ error() {} } as never),
    },
    {
      config: { billingReturnUrlRelative: '/settings/billing', pastDue: 'entitled', ...config },
      owners: billingOwners(userCollection(store), organizationCollections(store).organizations),
      outbox: { mail: () => NO_EFFECT },
      event: committing(),
      publicUrl: () => 'https://app.example.test',
      wait: async () => {},
      ...options,
    },
  );
  const [reconcile, retryUnmatched] = [jobs.get('billing-reconcile'), jobs.get('billing-retry-unmatched')];
  const purge = jobs.get('billing-event-purge');
  if (!reconcile || !retryUnmatched || !purge) throw new Error('The jobs of billing have other names.');
  const profiles = jobs.get('customer-profiles');
  const recovery = jobs.get('billing-event-recovery');
  const seats = jobs.get('organization-seats');
  return {
    ...billing,
    jobs: {
      reconcile,
      retryUnmatched,
      purge,
      ...(profiles && { profiles }),
      ...(recovery && { recovery }),
      ...(seats && { seats }),
    },
    sendUsage: jobs.get('billing-usage'),
    purgeUsage: jobs.get('billing-usage-purge'),
  };
}

/** Runs every background job of billing once. */
export async function runJobs({ jobs }: Pick<TestBilling, 'jobs'>): Promise<void> {
  const lease = { term: 1, signal: new AbortController().signal };
  await jobs.reconcile.run(lease);
  await jobs.retryUnmatched.run(lease);
  await jobs.purge.run(lease);
}

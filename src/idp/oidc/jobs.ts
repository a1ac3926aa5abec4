import type { Metrics } from '../../core/ops/metrics.js';
import { createExpiryPurge } from '../../core/ops/purge.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { BackchannelLogout } from './backchannel/service.js';
import { createOrphanPurge, type OrphanPurgeDependencies } from './delegations/orphans.js';
import type { GrantedAccess } from './granted-access.js';
import { createPurges, type PurgeDependencies } from './purge.js';
import {
  consentCollection,
  grantCollection,
  pushedRequestCollection,
  sessionCollection,
  usedAssertionCollection,
  usedProofCollection,
} from './store.js';

export interface JobDependencies
  extends Pick<GrantedAccess, 'delegations' | 'delegationDocuments' | 'revocationDocuments'> {
  directory: PurgeDependencies['directory'];
  resources: OrphanPurgeDependencies['resources'];
  backchannel: Pick<BackchannelLogout, 'jobs' | 'countDue'>;
}

/** Adds the jobs of OpenID Connect: they remove what has expired, and notify applications of ended sessions. */
export function addJobs(
  { store, clock, jobs, metrics }: Pick<ModuleContext, 'store' | 'clock' | 'jobs' | 'metrics'>,
  { directory, resources, backchannel, delegations, ...documents }: JobDependencies,
): void {
  const { delegationDocuments, revocationDocuments } = documents;
  const purges = createPurges({
    grants: grantCollection(store),
    sessions: sessionCollection(store),
    consents: consentCollection(store),
    directory,
    clock,
  });
  for (const [name, job] of Object.entries(purges)) jobs.add(name, job);
  jobs.add('client-assertion-purge', createExpiryPurge(usedAssertionCollection(store), clock));
  jobs.add('pushed-request-purge', createExpiryPurge(pushedRequestCollection(store), clock));
  jobs.add('dpop-proof-purge', createExpiryPurge(usedProofCollection(store), clock));
  jobs.add('delegation-purge', createExpiryPurge(delegationDocuments, clock));
  const end = async (id: string) => (await delegations()).end(id, { ip: 'local' });
  jobs.add('orphaned-delegations', createOrphanPurge(delegationDocuments, { directory, resources, end }));
  jobs.add('revocation-purge', createExpiryPurge(revocationDocuments, clock));
  jobs.add('backchannel-logout', backchannel.jobs.send);
  jobs.add('logout-notice-purge', backchannel.jobs.purge);
  if (metrics) measureNotices(metrics, backchannel);
}

/** Notices counted at a scrape. */
const MAX_COUNTED = 10_000;

function measureNotices(metrics: Metrics, { countDue }: Pick<BackchannelLogout, 'countDue'>): void {
  metrics.storeGauge(
    {
      name: 'backchannel_logouts_due',
      help: `Applications to be notified that a session has ended, counted up to ${MAX_COUNTED}.`,
    },
    async () => [{ labels: {}, value: await countDue(MAX_COUNTED) }],
  );
}

import { createExpiryPurge } from '../../core/ops/purge.js';
import { createPurges } from './purge.js';
import type { OidcServices } from './services.js';
import { pushedRequestCollection, usedProofCollection } from './store.js';

/** Notices counted at a scrape. */
const MAX_COUNTED = 10_000;

/** Adds the jobs of OpenID Connect: they remove what has expired, and notify applications of ended sessions. */
export function addJobs(services: OidcServices): void {
  const { store, clock, jobs, metrics, usedAssertions } = services;
  const { backchannel, delegationDocuments, revocationDocuments } = services;
  for (const [name, job] of Object.entries(createPurges(services))) jobs.add(name, job);
  jobs.add('client-assertion-purge', createExpiryPurge(usedAssertions, clock));
  jobs.add('pushed-request-purge', createExpiryPurge(pushedRequestCollection(store), clock));
  jobs.add('dpop-proof-purge', createExpiryPurge(usedProofCollection(store), clock));
  jobs.add('delegation-purge', createExpiryPurge(delegationDocuments, clock));
  jobs.add('revocation-purge', createExpiryPurge(revocationDocuments, clock));
  jobs.add('backchannel-logout', backchannel.jobs.send);
  jobs.add('logout-notice-purge', backchannel.jobs.purge);
  metrics?.storeGauge(
    {
      name: 'backchannel_logouts_due',
      help: `Applications to be notified that a session has ended, counted up to ${MAX_COUNTED}.`,
    },
    async () => [{ labels: {}, value: await backchannel.countDue(MAX_COUNTED) }],
  );
}

import { createListedAudit } from '../core/ops/audit.js';
import { createCommandContext } from '../core/server/module-context.js';
import type { Store } from '../core/storage/collection.js';
import { attentionCollection } from '../shared/console-kit/attention.js';
import { mailCollection } from '../shared/email/store.js';
import { factorCollection } from '../shared/factors/store.js';
import { passkeyCollection, usedChallengeCollection } from '../shared/passkeys/store.js';
import { agentLinkCollection, usedAgentProofCollection } from './agents/store.js';
import { foreignHashCollection } from './auth/import/foreign-hashes.js';
import { activityCollection } from './auth/sessions/activity.js';
import { loginCodeCollection } from './auth/sign-in/login-codes.js';
import { sessionCollection, userCollection } from './auth/store.js';
import { figureCollections } from './billing/figures/store.js';
import { purchaseCollection } from './billing/purchases.js';
import { quotaCollections } from './billing/quotas/store.js';
import { billingCollections } from './billing/store.js';
import { usageCollection } from './billing/usage/reports.js';
import { keyCollection } from './keys/store.js';
import { identityCollection, usedTicketCollection } from './login-providers/store.js';
import { organizationCollections } from './organizations/store.js';
import { settingsCollection } from './settings/store.js';
import { deliveryCollection, endpointCollection } from './webhooks/store.js';

/** Declares every collection of the SaaS backend, whatever is configured. */
export function declareSaasCollections(store: Store): void {
  createCommandContext(store, { production: false, warn: () => {}, createAudit: createListedAudit });
  const collections = [
    userCollection,
    sessionCollection,
    foreignHashCollection,
    settingsCollection,
    mailCollection,
    attentionCollection,
    billingCollections,
    figureCollections,
    activityCollection,
    purchaseCollection,
    quotaCollections,
    usageCollection,
    factorCollection,
    identityCollection,
    usedTicketCollection,
    passkeyCollection,
    usedChallengeCollection,
    loginCodeCollection,
    agentLinkCollection,
    usedAgentProofCollection,
    endpointCollection,
    deliveryCollection,
    organizationCollections,
    keyCollection,
  ];
  for (const declare of collections) declare(store);
}

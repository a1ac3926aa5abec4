import { agentLinkCollection, usedAgentProofCollection } from '../agents/store.js';
import { activityCollection } from '../auth/activity.js';
import { foreignHashCollection } from '../auth/foreign-hashes.js';
import { loginCodeCollection } from '../auth/login-codes.js';
import { sessionCollection, userCollection } from '../auth/store.js';
import { trialCollections } from '../billing/checkout/trials.js';
import { figureCollections } from '../billing/figures/store.js';
import { purchaseCollection } from '../billing/purchases.js';
import {
  checkoutCollection,
  customerCollection,
  linkedCustomerCollection,
  paymentCollection,
  subscriptionCollection,
  webhookEventCollection,
} from '../billing/store.js';
import { duplicateCollection } from '../billing/subscription/duplicates.js';
import { usageCollection } from '../billing/usage/reports.js';
import { mailCollection } from '../email/store.js';
import { factorCollection } from '../factors/store.js';
import { identityCollection, usedTicketCollection } from '../federation/store.js';
import { createListedAudit } from '../ops/audit.js';
import { passkeyCollection, usedChallengeCollection } from '../passkeys/store.js';
import { createCommandContext } from '../server/module-context.js';
import { settingsCollection } from '../settings/store.js';
import type { Store } from '../storage/collection.js';
import { deliveryCollection, endpointCollection, intentCollection } from '../webhooks/store.js';

/** Declares every collection of the SaaS backend, whatever is configured. */
export function declareSaasCollections(store: Store): void {
  createCommandContext(store, { production: false, warn: () => {}, createAudit: createListedAudit });
  const collections = [
    userCollection,
    sessionCollection,
    foreignHashCollection,
    settingsCollection,
    mailCollection,
    customerCollection,
    linkedCustomerCollection,
    subscriptionCollection,
    duplicateCollection,
    checkoutCollection,
    trialCollections,
    figureCollections,
    activityCollection,
    purchaseCollection,
    paymentCollection,
    usageCollection,
    factorCollection,
    identityCollection,
    usedTicketCollection,
    passkeyCollection,
    usedChallengeCollection,
    loginCodeCollection,
    agentLinkCollection,
    usedAgentProofCollection,
    webhookEventCollection,
    endpointCollection,
    deliveryCollection,
    intentCollection,
  ];
  for (const declare of collections) declare(store);
}

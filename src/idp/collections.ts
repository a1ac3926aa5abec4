import { createAudit } from '../core/ops/audit.js';
import { documentCollection } from '../core/outbound/documents.js';
import { createCommandContext } from '../core/server/module-context.js';
import type { Store } from '../core/storage/collection.js';
import { attentionCollection } from '../shared/console-kit/attention.js';
import { mailCollection } from '../shared/email/store.js';
import { factorCollection } from '../shared/factors/store.js';
import { passkeyCollection, usedChallengeCollection } from '../shared/passkeys/store.js';
import { signInDayCollection, signInProgressCollection } from './console/sign-in-days.js';
import { groupCollection, memberCollection } from './groups/store.js';
import { approvalRequestCollection } from './oidc/approvals/store.js';
import { endedSessionsCollection, logoutNoticeCollection } from './oidc/backchannel/store.js';
import { delegationCollection } from './oidc/delegations/store.js';
import { deviceRequestCollection } from './oidc/device/store.js';
import { revocationCollection } from './oidc/revocations/service.js';
import {
  consentCollection,
  grantCollection,
  pushedRequestCollection,
  sessionCollection,
  usedAssertionCollection,
  usedProofCollection,
} from './oidc/store.js';
import { permissionCollection } from './permissions/store.js';
import { addressCollection } from './provisioning/addresses.js';
import { agentUseCollection } from './provisioning/agent-uses.js';
import { setupCollection } from './provisioning/first-operator.js';
import { clientCollection, createLastKnownAddress, principalCollection } from './provisioning/store.js';
import { registrationTokenCollection } from './registration/store.js';
import { resourceCollection } from './resources/store.js';
import { audienceCollection, subjectLinkCollection, trustedIssuerCollection } from './trust/store.js';

/**
 * Declares every collection of the identity provider, whatever is configured: a copy of a store has the indexes of all
 * of them.
 */
export function declareIdpCollections(store: Store): void {
  createCommandContext(store, { production: false, warn: () => {}, createAudit });
  const collections = [
    principalCollection,
    addressCollection,
    groupCollection,
    memberCollection,
    clientCollection,
    setupCollection,
    createLastKnownAddress,
    grantCollection,
    sessionCollection,
    consentCollection,
    mailCollection,
    attentionCollection,
    factorCollection,
    passkeyCollection,
    usedChallengeCollection,
    logoutNoticeCollection,
    endedSessionsCollection,
    usedAssertionCollection,
    usedProofCollection,
    pushedRequestCollection,
    documentCollection,
    registrationTokenCollection,
    resourceCollection,
    revocationCollection,
    deviceRequestCollection,
    delegationCollection,
    approvalRequestCollection,
    permissionCollection,
    agentUseCollection,
    trustedIssuerCollection,
    subjectLinkCollection,
    audienceCollection,
    signInDayCollection,
    signInProgressCollection,
  ];
  for (const declare of collections) declare(store);
}

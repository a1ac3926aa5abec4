import type { ModuleContext } from '../../core/server/module-context.js';
import type { EndClient } from '../provisioning/clients.js';
import type { EndSessions } from '../provisioning/store.js';
import { announceEnd, logoutNoticeCollection } from './backchannel/store.js';
import { createConsentService } from './consents.js';
import type { Delegations } from './delegations/service.js';
import { delegationCollection } from './delegations/store.js';
import type { Directory } from './directory.js';
import { createRevocations, revocationCollection } from './revocations/service.js';
import { consentCollection } from './store.js';

export interface GrantedAccessOptions {
  resources: { hasAny(): Promise<boolean> };
  findPrincipal: Directory['findPrincipal'];
  /** Has the server notify applications of ended sessions now. A command leaves it to the server. */
  wake(): void;
}

/**
 * What people have allowed, and how it ends together with an account or a client. It needs neither of their domains, so that
 * it is built before them; commands use it beside a server.
 */
export function createGrantedAccess(
  { store, audit, clock, random }: ModuleContext,
  { resources, findPrincipal, wake }: GrantedAccessOptions,
) {
  const notices = logoutNoticeCollection(store);
  const revocationDocuments = revocationCollection(store);
  const delegationDocuments = delegationCollection(store);
  const revocations = createRevocations({ revocationDocuments, resources, findPrincipal, clock });
  let opened: Promise<Delegations> | undefined;
  const delegations = (): Promise<Delegations> => {
    opened ??= import('./delegations/service.js').then(({ createDelegations }) =>
      createDelegations({
        delegationDocuments,
        directory: { findPrincipal },
        revocations,
        audit,
        clock,
        random,
      }),
    );
    return opened;
  };
  const endSessions: EndSessions = (sub, change) =>
    revocations.endPrincipal(sub, () => announceEnd({ sub }, change, { notices, clock, wake }));

  const endClient: EndClient = async (id, change, by) => {
    const removed = await revocations.end('client_id', id, change);
    if (await resources.hasAny()) await (await delegations()).endAll({ clientId: id }, by);
    return removed;
  };

  return {
    notices,
    wake,
    revocations,
    revocationDocuments,
    consents: createConsentService(consentCollection(store), clock, revocations.endAccess),
    /** Loaded with the first call. */
    delegations,
    delegationDocuments,
    endSessions,
    endClient,
  };
}

export type GrantedAccess = ReturnType<typeof createGrantedAccess>;

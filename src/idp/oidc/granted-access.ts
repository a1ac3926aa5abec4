import { newId } from '../../core/kernel/secrets.js';
import type { Effect } from '../../core/ops/commit.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { Write } from '../../core/storage/collection.js';
import type { EndClient } from '../provisioning/clients.js';
import type { EndSessions } from '../provisioning/store.js';
import type { EndResource } from '../resources/administration.js';
import {
  type EndedSessionsDocument,
  endedSessionsCollection,
  logoutNoticeCollection,
} from './backchannel/store.js';
import { createConsentService } from './consents.js';
import { createDelegations, type Delegations } from './delegations/service.js';
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
 * What people have allowed, and what ends with a session, an account, a client or a resource. It needs none of their domains, so
 * that it is built before them; commands use it beside a server.
 */
export function createGrantedAccess(
  context: Pick<ModuleContext, 'store' | 'commit' | 'audit' | 'backgroundTasks' | 'clock' | 'random'>,
  { resources, findPrincipal, wake }: GrantedAccessOptions,
) {
  const { store, backgroundTasks, clock, random } = context;
  const endedSessions = endedSessionsCollection(store);
  const revocationDocuments = revocationCollection(store);
  const delegationDocuments = delegationCollection(store);
  const consentDocuments = consentCollection(store);
  const revocations = createRevocations({ ...context, revocationDocuments, resources });
  const delegations = createDelegations({ ...context, delegationDocuments, findPrincipal, revocations });

  const sessionsEnded = (ended: Omit<EndedSessionsDocument, 'id'>): Write =>
    endedSessions.inserting({ id: newId('end_', clock, random), ...ended });

  /** There is any number of them, so they end after the commit. What a crash leaves is ended by a job. */
  const endDelegations = (...given: Parameters<Delegations['endAll']>): void =>
    backgroundTasks.run('end of delegations', () => delegations.endAll(...given));

  /** What ends with a session, for the commit that deletes it. */
  const endSession = async (session: string): Promise<Effect> => ({
    writes: defined(sessionsEnded({ session }), await revocations.ending('sid', session)),
    afterCommit: wake,
  });

  const endSessions: EndSessions = async ({ id: sub, epoch: current = 0 }, by) => {
    const epoch = current + 1;
    return {
      writes: defined(sessionsEnded({ sub, epoch }), await revocations.ending('sub', sub, epoch)),
      afterCommit() {
        wake();
        // They are refused already: this ends them in the lists and the audit.
        endDelegations({ person: sub }, by, ({ personEpoch = 0 }) => personEpoch < epoch);
        endDelegations({ agent: sub }, by, ({ agentEpoch = 0 }) => agentEpoch < epoch);
      },
    };
  };

  const endClient: EndClient = async (clientId, by) => {
    const revocation = await revocations.ending('client_id', clientId);
    return {
      writes: defined(revocation),
      afterCommit: () => revocation && endDelegations({ clientId }, by),
    };
  };

  const endResource: EndResource = (resource, by) => ({
    writes: [revocations.endingResource(resource)],
    afterCommit: () => endDelegations({ resource }, by),
  });

  return {
    notices: logoutNoticeCollection(store),
    endedSessions,
    wake,
    revocations,
    revocationDocuments,
    consentDocuments,
    consents: createConsentService({ ...context, consents: consentDocuments, revocations }),
    delegations,
    delegationDocuments,
    endSession,
    /** The session of a person who signs in again in the same browser, for the commit that replaces it. */
    continueSession: (session: string, continuedBy: string): Write => sessionsEnded({ session, continuedBy }),
    endSessions,
    endClient,
    endResource,
  };
}

const defined = (...writes: readonly (Write | undefined)[]): Write[] =>
  writes.filter((one) => one !== undefined);

export type GrantedAccess = ReturnType<typeof createGrantedAccess>;

import type { Collection, Store } from '../../../core/storage/collection.js';

/** The permission of a person for an agent to act for them at one resource (RFC 8693). */
export interface DelegationDocument {
  /** `dlg_…`, the claim `delegation` of its tokens. */
  id: string;
  /** Hash of the person, the agent and the resource: there is one delegation for all three. */
  parties: string;
  person: string;
  /** `epoch` of the person when it was given. */
  personEpoch?: number;
  agent: string;
  /** `epoch` of the agent when it was given. */
  agentEpoch?: number;
  /** The identifier of the resource. */
  resource: string;
  scopes: string[];
  /** The client that asked for it and gets its tokens. */
  clientId: string;
  /** The grant of the code with which it was given: the claim `txn` of its tokens, and in each of its audit records. */
  txn: string;
  /** How many agents may follow one another, the first included. */
  maxDepth: number;
  createdAt: number;
  expiresAt: number;
  /** When the client last got an access token. */
  lastUsedAt?: number;
  /** Present when it was ended. */
  revokedAt?: number;
}

/** Prefix of the ids. */
export const DELEGATION = 'dlg_';

export type DelegationCollection = Collection<DelegationDocument>;

export const delegationCollection = (store: Store): DelegationCollection =>
  store.collection<DelegationDocument>('delegations', {
    unique: ['parties'],
    indexes: [['expiresAt'], ['person'], ['agent'], ['clientId'], ['resource']],
    numbers: ['expiresAt', 'revokedAt'],
  });

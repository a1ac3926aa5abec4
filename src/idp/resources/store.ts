import type { Collection, Store } from '../../core/storage/collection.js';

export const KINDS = ['agent', 'human'] as const;
export type Kind = (typeof KINDS)[number];

/** The signature algorithms of access tokens; the first is that of every resource for which none is chosen. */
export const ACCESS_TOKEN_ALGORITHMS = ['EdDSA', 'ES256'] as const;
export type AccessTokenAlgorithm = (typeof ACCESS_TOKEN_ALGORITHMS)[number];

/** One kind of access to a resource. */
export interface ResourceScope {
  name: string;
  /** What the scope permits, for the person who allows it. */
  description: string;
  /** Present when the operator marked it. */
  sensitive?: true;
}

export const FIELD_KINDS = ['text', 'number', 'boolean'] as const;

/** One kind of action for which the API demands the approval of a person (RFC 9396). */
export interface ApprovalType {
  /** The `type` of its authorization details. */
  name: string;
  /** What the person reads, with fields in braces: `Pay {amount} {currency} to {creditor}`. */
  sentence: string;
  /** All that its details contain beside `type`. */
  fields: { name: string; kind: (typeof FIELD_KINDS)[number]; optional?: true }[];
}

/** An API that accepts access tokens of this provider (RFC 8707, RFC 9068). */
export interface ResourceDocument {
  /** `res_…`, with which the API authenticates to introspect tokens. */
  id: string;
  /** The absolute URI that is the audience of its access tokens. */
  identifier: string;
  name: string;
  scopes: ResourceScope[];
  /** Absent without any. */
  approvals?: ApprovalType[];
  tokenLifetimeSeconds: number;
  /** The kinds of principals that may get a token. */
  principalKinds: Kind[];
  /** The groups whose members alone may get a token; absent: everyone of these kinds. */
  admittedGroups?: string[];
  /** The groups in its tokens: `all`, or names with the names that it gets; absent: none. */
  groupsClaim?: string;
  /** Whether principals that have registered themselves may get a token: all, or only people. */
  admitsSelfRegistered?: true | 'people';
  /** Whether its tokens are bound to a key (DPoP, RFC 9449). */
  requiresDpop?: true;
  /** The algorithms with which its access tokens have been signed, the current one first; absent: EdDSA alone. */
  algorithms?: AccessTokenAlgorithm[];
  secretHash: string;
  /** The secret before the last rotation, valid until `previousSecretUntil`. */
  previousSecretHash?: string;
  previousSecretUntil?: number;
  /** Incremented by every change but those of the secrets, which is conditional on the value it read. */
  revision?: number;
  createdAt: number;
  updatedAt: number;
}

export type ResourceCollection = Collection<ResourceDocument>;

export function resourceCollection(store: Store): ResourceCollection {
  return store.collection<ResourceDocument>('resources', {
    unique: ['identifier'],
    fields: ['secretHash'],
    numbers: ['revision'],
  });
}

import type { Collection, Store } from '../storage/collection.js';
import type { Kind } from './schemas.js';

/**
 * - `invited`: has a link and no password yet. Inert: it can do nothing and be nothing.
 * - `disabled`: as good as unknown, on the very next request.
 * - `deleted`: keeps its handle taken, for ever, and holds nothing else.
 */
export type PrincipalState = 'invited' | 'active' | 'disabled' | 'deleted';

export interface PrincipalDocument {
  /** `sub`: opaque and never used again. */
  id: string;
  /** Canonical; unique across kinds for ever. */
  handle: string;
  kind: Kind;
  name?: string;
  state: PrincipalState;
  /** argon2id of a password that somebody chose. */
  passwordHash?: string;
  /** SHA-256 of a password that we generated: 256 random bits need no slow hash. */
  secretHash?: string;
  /** Raised when whatever was given out before is to be worth nothing any more: codes, tokens, sessions. */
  epoch?: number;
  /** SHA-256 of the link with which its owner may set a password: an invitation, or a reset. */
  linkHash?: string;
  linkExpiresAt?: number;
  /** SHA-256 of the last link that was used. */
  usedLinkHash?: string;
  /** Whoever came by an invitation: the operator named the handle. */
  invitedAt?: number;
  createdAt: number;
  updatedAt: number;
}

export interface ClientDocument {
  /** `cid_…` */
  id: string;
  name: string;
  redirectUris: string[];
  postLogoutRedirectUris: string[];
  /** Absent for public clients. */
  secretHash?: string;
  /** The one before a rotation, valid until then. */
  previousSecretHash?: string;
  previousSecretUntil?: number;
  /** Who may sign in there. */
  principalKinds: Kind[];
  /** People who are signed in already are not asked for their consent. Absent: they are. */
  trusted?: true;
  createdAt: number;
}

export type PrincipalCollection = Collection<PrincipalDocument>;
export type ClientCollection = Collection<ClientDocument>;

export function principalCollection(store: Store): PrincipalCollection {
  return store.collection<PrincipalDocument>('principals', {
    unique: ['handle'],
    indexes: [['createdAt']],
    fields: ['state', 'kind', 'epoch', 'linkHash', 'linkExpiresAt'],
  });
}

export function clientCollection(store: Store): ClientCollection {
  return store.collection<ClientDocument>('clients', { indexes: [['createdAt']], fields: ['secretHash'] });
}

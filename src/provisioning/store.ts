import type { Collection, Store } from '../storage/collection.js';
import type { Kind } from './schemas.js';

export interface PrincipalDocument {
  /** `sub`: opaque and never used again. */
  id: string;
  /** Canonical; unique across kinds for ever. */
  handle: string;
  kind: Kind;
  name?: string;
  /** A disabled principal is as good as unknown, on the very next request. */
  state: 'active' | 'disabled';
  /** argon2id of a password that somebody chose. */
  passwordHash?: string;
  /** SHA-256 of a password that we generated: 256 random bits need no slow hash. */
  secretHash?: string;
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
  /** Who may sign in there. */
  principalKinds: Kind[];
  createdAt: number;
}

export type PrincipalCollection = Collection<PrincipalDocument>;
export type ClientCollection = Collection<ClientDocument>;

export function principalCollection(store: Store): PrincipalCollection {
  return store.collection<PrincipalDocument>('principals', { unique: ['handle'], indexes: [['createdAt']] });
}

export function clientCollection(store: Store): ClientCollection {
  return store.collection<ClientDocument>('clients', { indexes: [['createdAt']] });
}

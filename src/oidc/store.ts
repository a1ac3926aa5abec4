import type { Collection, Store } from '../storage/collection.js';

/**
 * What a principal granted a client by one sign-in: first an authorization code, then the tokens bought with
 * it. One document, so that the code is consumed in the very write that stores the token, and so that one
 * mark revokes everything.
 */
export interface GrantDocument {
  id: string;
  /** SHA-256 of the code. */
  codeHash: string;
  clientId: string;
  sub: string;
  /** Of the principal when it signed in. */
  epoch?: number;
  redirectUri: string;
  /** Separated by spaces. */
  scope: string;
  nonce?: string;
  /** S256 code challenge (RFC 7636). */
  challenge?: string;
  /** Authentication context class, when the client asked for one. */
  acr?: string;
  /** Of the session of a person in whose browser it was made. */
  sid?: string;
  /** When the principal proved who it is. */
  authTime: number;
  createdAt: number;
  codeExpiresAt: number;
  /** Absent while the code may be redeemed. */
  consumedAt?: number;
  /** A few at most, the oldest first. */
  accessTokens?: IssuedToken[];
  /** SHA-256 of the refresh token, where the principal granted `offline_access`: the family has one at a time. */
  refreshHash?: string;
  refreshExpiresAt?: number;
  /** SHA-256 of the one before, and when it was exchanged. */
  previousRefreshHash?: string;
  rotatedAt?: number;
  /** Raised by every change of the tokens above after the redemption, each of which is made for the one it read. */
  revision?: number;
  /** Everything issued from the grant is dead. */
  revokedAt?: number;
}

/** An access token that was given out. */
export interface IssuedToken {
  /** SHA-256 */
  hash: string;
  expiresAt: number;
  /** Where it is less than the grant's. */
  scope?: string;
}

/** A person who has signed in, in one browser. */
export interface SessionDocument {
  /** `sid` in the id_tokens. */
  id: string;
  /** SHA-256 of the cookie. */
  tokenHash: string;
  sub: string;
  /** Of the principal when it signed in. */
  epoch?: number;
  authTime: number;
  createdAt: number;
  expiresAt: number;
}

/** What a person lets a client learn. */
export interface ConsentDocument {
  /** The principal and the client. */
  id: string;
  scopes: string[];
  updatedAt: number;
}

/** Begins the identifier of every grant. */
export const GRANT = 'gr_';

/** Begins the identifier of every session. */
export const SESSION = 'sid_';

export type Grants = Collection<GrantDocument>;
export type Sessions = Collection<SessionDocument>;
export type Consents = Collection<ConsentDocument>;

export function grantCollection(store: Store): Grants {
  return store.collection<GrantDocument>('grants', {
    fields: ['codeExpiresAt', 'consumedAt', 'revokedAt', 'revision'],
  });
}

export function sessionCollection(store: Store): Sessions {
  return store.collection<SessionDocument>('sessions', { indexes: [['expiresAt']] });
}

export function consentCollection(store: Store): Consents {
  return store.collection<ConsentDocument>('consents');
}

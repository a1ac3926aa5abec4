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
  /** When the principal proved who it is. */
  authTime: number;
  createdAt: number;
  codeExpiresAt: number;
  /** Absent while the code may be redeemed. */
  consumedAt?: number;
  /** SHA-256 of the access token. */
  accessHash?: string;
  accessExpiresAt?: number;
  /** Everything issued from the grant is dead. */
  revokedAt?: number;
}

/** A sign-in form that was shown: what the client asked for, and the browser it was shown to. */
export interface InteractionDocument {
  id: string;
  /** SHA-256 of the token in the form. */
  tokenHash: string;
  /** SHA-256 of the cookie. */
  cookieHash: string;
  /** The parameters as they came, judged anew when the form returns. */
  parameters: Record<string, string>;
  expiresAt: number;
}

/** Begins the identifier of every grant. */
export const GRANT = 'gr_';

export type Grants = Collection<GrantDocument>;
export type Interactions = Collection<InteractionDocument>;

export function grantCollection(store: Store): Grants {
  return store.collection<GrantDocument>('grants', {
    unique: ['codeHash'],
    fields: ['codeExpiresAt', 'consumedAt', 'revokedAt'],
  });
}

export function interactionCollection(store: Store): Interactions {
  return store.collection<InteractionDocument>('interactions', {
    unique: ['tokenHash'],
    indexes: [['expiresAt']],
  });
}

import { usedOnceCollection } from '../../core/ops/single-use.js';
import type { Collection, Store } from '../../core/storage/collection.js';
import type { ResourceScopes } from './resources.js';

/**
 * The result of one sign-in to a client: first an authorization code, then the tokens that it is redeemed for. In one
 * document, so that one write consumes the code and stores the tokens, and one field revokes everything.
 */
export interface GrantDocument {
  id: string;
  /** SHA-256 of the code. */
  codeHash: string;
  clientId: string;
  sub: string;
  /** `epoch` of the principal at sign-in. */
  epoch?: number;
  /** Absent for a device, whose code needs no redirect. */
  redirectUri?: string;
  /** The scopes of the provider itself, separated by spaces. */
  scope: string;
  /** The resources for which access tokens may be issued, with their scopes. */
  resources?: ResourceScopes[];
  nonce?: string;
  /** S256 code challenge (RFC 7636). */
  challenge?: string;
  /** Thumbprint of the key that the code is bound to (RFC 9449 §10). */
  codeKey?: string;
  /** Thumbprint of the key that the refresh token is bound to (RFC 9449 §5). */
  refreshKey?: string;
  /** Present if all tokens are bound to a key, also when the client has lost its profile. */
  requiresKey?: true;
  /** Authentication context class, if the client requested one. */
  acr?: string;
  /** How the principal signed in, if not with a password alone. */
  amr?: string[];
  /** The session of the user, if there is one. */
  sid?: string;
  /** `revocations` of the consent at sign-in; absent for 0. */
  revocations?: number;
  /** When the principal authenticated. */
  authTime: number;
  createdAt: number;
  codeExpiresAt: number;
  /** Present if an agent gets the tokens, to act for the person. */
  delegation?: GrantedDelegation;
  /** Present if one token is for what the person has approved. */
  approval?: GrantedApproval;
  /** Absent while the code may be redeemed. */
  consumedAt?: number;
  /**
   * When the request began that has consumed the code, until it is answered. If it fails instead, its process reverts the
   * consumption as soon as the store responds. Only where a write can take effect although its request fails.
   */
  unansweredSince?: number;
  /** A few at most, the oldest first. */
  accessTokens?: IssuedToken[];
  /** SHA-256 of the current refresh token, if `offline_access` was granted. */
  refreshHash?: string;
  refreshExpiresAt?: number;
  /** SHA-256 of the previous refresh token, and when it was used. */
  previousRefreshHash?: string;
  rotatedAt?: number;
  /** Incremented by every later change of the tokens above, which is conditional on the value it read. */
  revision?: number;
  /** Present when everything issued from the grant is revoked. */
  revokedAt?: number;
}

/** A request that a person decides elsewhere, while its client polls: of a device, or for an approval. */
export interface PendingRequest {
  /** The grant that follows an approval has the same digits. */
  id: string;
  /** SHA-256 of the code with which the client polls. */
  codeHash: string;
  clientId: string;
  /** The scopes of the provider itself, separated by spaces. */
  scope: string;
  resources?: ResourceScopes[];
  createdAt: number;
  expiresAt: number;
  /** Seconds between two polls. */
  interval: number;
  polledAt?: number;
  state: 'pending' | 'approved' | 'denied';
  /** Present when it is approved. */
  approval?: Approval;
}

/** Who has approved a request, and in which session. */
export interface Approval {
  sub: string;
  epoch?: number;
  /** The session that the tokens belong to; absent if they outlive it. */
  sid?: string;
  amr?: string[];
  authTime: number;
  /** `revocations` of the consent. */
  revocations?: number;
  approvedAt: number;
}

/** What a person has approved, once. */
export interface GrantedApproval {
  /** The agent that does it; absent for an application. */
  agent?: string;
  /** `epoch` of the agent. */
  agentEpoch?: number;
  /** Absent if scopes were approved only. */
  details?: AuthorizationDetail;
}

/** One entry of `authorization_details` (RFC 9396 §2). */
export type AuthorizationDetail = { type: string } & Record<string, string | number | boolean>;

/** A delegation as it was when the person gave it. */
export interface GrantedDelegation {
  id: string;
  agent: string;
  /** `epoch` of the agent. */
  agentEpoch?: number;
  /** Present if the agent is the client itself. */
  isClient?: true;
  expiresAt: number;
}

/** The agent that acts with the tokens of a grant. */
export const actorOf = ({ delegation, approval }: Pick<GrantDocument, 'delegation' | 'approval'>) =>
  delegation ?? (approval?.agent === undefined ? undefined : { ...approval, agent: approval.agent });

/** An issued access token. */
export interface IssuedToken {
  /** SHA-256 of an opaque token; `jti` of a token for a resource. */
  hash: string;
  expiresAt: number;
  /** The audience of a token for a resource. */
  resource?: string;
  /** Present when it is narrower than the scope of the grant. */
  scope?: string;
  /** Thumbprint of the key that it is bound to (RFC 9449 §6). */
  key?: string;
}

/** A user who is signed in in one browser. */
export interface SessionDocument {
  /** `sid` in the id_tokens. */
  id: string;
  /** SHA-256 of the cookie. */
  tokenHash: string;
  sub: string;
  /** `epoch` of the principal at sign-in. */
  epoch?: number;
  authTime: number;
  /** How the user signed in, if not with a password alone. */
  amr?: string[];
  /** The family of the browser, its operating system and the address block at sign-in, as far as they are known. */
  browser?: string;
  system?: string;
  place?: string;
  createdAt: number;
  expiresAt: number;
}

/** The scopes that a user granted to a client. */
export interface ConsentDocument {
  /** The principal and the client. */
  id: string;
  scopes: string[];
  /** The scopes of resources, for each resource once. */
  resources?: ResourceScopes[];
  /** When a client that needs no consent got a refresh token. */
  connectedAt?: number;
  /** How often the user has revoked the access; grants of the client with another number are invalid. */
  revocations?: number;
  updatedAt: number;
}

/** An authorization request that a client has pushed (RFC 9126). */
export interface PushedRequestDocument {
  /** SHA-256 of the `request_uri`. */
  id: string;
  /** SHA-256 of its identifier, which may be an address. */
  clientId: string;
  /** The parameters, encrypted with the `request_uri`. */
  parameters: string;
  pushedAt: number;
  /** Present when a browser has opened it, which leaves the person time to sign in. */
  openedAt?: number;
  /** Present when a code was issued for it. */
  usedAt?: number;
  expiresAt: number;
}

/** Prefix of grant ids. */
export const GRANT = 'gr_';

/** Prefix of session ids. */
export const SESSION = 'sid_';

export type Grants = Collection<GrantDocument>;
export type Sessions = Collection<SessionDocument>;
export type Consents = Collection<ConsentDocument>;

/** Client assertions and those of other providers that were used (RFC 7523 §3), by a hash of the issuer and the `jti`. */
export const usedAssertionCollection = (store: Store) => usedOnceCollection(store, 'usedAssertions');

/** DPoP proofs that were used (RFC 9449 §11.1), by a hash of the key and the `jti`. */
export const usedProofCollection = (store: Store) => usedOnceCollection(store, 'usedProofs');

export type PushedRequests = Collection<PushedRequestDocument>;

export const pushedRequestCollection = (store: Store): PushedRequests =>
  store.collection<PushedRequestDocument>('pushedRequests', {
    indexes: [['expiresAt']],
    fields: ['clientId'],
    numbers: ['expiresAt', 'openedAt', 'usedAt'],
  });

export function grantCollection(store: Store): Grants {
  return store.collection<GrantDocument>('grants', {
    numbers: ['codeExpiresAt', 'consumedAt', 'revokedAt', 'revision'],
  });
}

export function sessionCollection(store: Store): Sessions {
  return store.collection<SessionDocument>('sessions', {
    indexes: [['expiresAt'], ['sub']],
    numbers: ['expiresAt'],
  });
}

export function consentCollection(store: Store): Consents {
  return store.collection<ConsentDocument>('consents', { numbers: ['revocations'] });
}

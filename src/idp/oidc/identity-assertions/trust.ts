import type { SigningAlgorithm } from '../keys.js';
import type { ResourceScopes } from '../resources.js';

/**
 * Identity assertions (draft-ietf-oauth-identity-assertion-authz-grant): a provider tells another authorization server
 * which person a client acts for. Which providers are trusted, another domain stores; the product passes a `Trust`.
 */

/** `typ` of the header. */
export const ASSERTION_TYPE = 'oauth-id-jag+jwt';

/** The type of the token that a token exchange issues. */
export const ASSERTION_TOKEN = 'urn:ietf:params:oauth:token-type:id-jag';

/** The grant type with which they are presented (RFC 7523 §2.1), and its profile in the metadata. */
export const JWT_BEARER = 'urn:ietf:params:oauth:grant-type:jwt-bearer';
export const ASSERTION_PROFILE = 'urn:ietf:params:oauth:grant-profile:id-jag';

/** The longest time between `iat` and `exp`. */
export const MAX_LIFETIME_SECONDS = 300;

/** Another provider, whose assertions are exchanged for access tokens. */
export interface TrustedIssuer {
  issuer: string;
  clients: readonly string[];
  resources: readonly ResourceScopes[];
}

/** Another authorization server, for which assertions are issued. */
export interface Audience {
  issuer: string;
  clients: readonly { id: string; idThere: string }[];
  resources: readonly ResourceScopes[];
  algorithm?: SigningAlgorithm;
}

export interface Trust {
  findIssuer(issuer: string): Promise<TrustedIssuer | null>;
  /** The `sub` of the person here that a subject of an issuer is linked to. */
  findSubject(issuer: string, subject: string): Promise<string | null>;
  findAudience(issuer: string): Promise<Audience | null>;
}

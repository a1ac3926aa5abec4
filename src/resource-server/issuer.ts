import type { JWTVerifyGetKey } from 'jose';
import { type Clock, SECOND } from '../core/kernel/clock.js';
import { bounded } from '../core/outbound/bounded-fetch.js';

/** What a resource server knows of its authorization server: its metadata (RFC 8414) and its keys. */

export interface Issuer {
  keys: JWTVerifyGetKey;
  /** Where the list of revoked access tokens is; absent if the issuer has none. */
  revocationsUri: string | undefined;
}

/** An issuer of access tokens, and what its tokens must be. */
export interface TrustedIssuer {
  /** Its name, exactly as in its tokens (`iss`). */
  issuer: string;
  /** Where its keys are. Default: where its metadata say (`/.well-known/openid-configuration`); saas-backend has none. */
  jwksUri?: string;
  /** The `aud` of its tokens for this API. Default: `resource`. */
  audience?: string;
  /** The algorithms of its signatures. Default: EdDSA, ES256 and RS256, each with keys of its type only; never one with a secret. */
  algorithms?: readonly string[];
  /**
   * `JWT` for issuers whose access tokens are not of the type `at+jwt` (RFC 9068), as with Okta, Auth0, Entra and Keycloak: of the type
   * `JWT` or none, as their id_tokens are, from which only `audience` then tells them apart. It must not be a client ID.
   */
  typ?: 'at+jwt' | 'JWT';
}

/** The part of `fetch` that is used. */
export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

const TIMEOUT_MS = 5 * SECOND;
/** After a failure, requests are refused without another attempt for this time. */
const RETRY_MS = SECOND;
/** Without a list of revoked tokens, the metadata are read again: the issuer may be about to register its first API. */
const REREAD_MS = 10 * SECOND;

export function createIssuerSource(
  { issuer, jwksUri: givenUri }: TrustedIssuer,
  { clock, fetch }: { clock: Clock; fetch: Fetch },
) {
  let known: { issuer: Issuer; at: number } | undefined;
  let reading: Promise<Issuer> | undefined;
  let failed: { at: number; error: unknown } | undefined;

  const discover = async (): Promise<Issuer> => {
    const { createRemoteJWKSet, customFetch } = await import('jose');
    const fetchKeys = async (url: string, init: RequestInit) => bounded(await fetch(url, init));
    const metadata =
      givenUri === undefined
        ? // OpenID Connect Discovery §4.1: without a slash at the end.
          await readJson(fetch, `${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`)
        : { issuer, jwks_uri: givenUri };
    const { issuer: name, jwks_uri: jwksUri, revocation_list_uri: revocationsUri }: Metadata = metadata;
    // OpenID Connect Discovery §4.3: otherwise one issuer could answer for another one.
    if (name !== issuer) throw new Error(`The metadata of ${issuer} names another issuer.`);
    if (typeof jwksUri !== 'string') throw new Error(`The metadata of ${issuer} has no jwks_uri.`);
    return {
      keys: createRemoteJWKSet(new URL(jwksUri), { timeoutDuration: TIMEOUT_MS, [customFetch]: fetchKeys }),
      revocationsUri: typeof revocationsUri === 'string' ? revocationsUri : undefined,
    };
  };

  return {
    /** Reads the metadata, as a rule once. @throws if the issuer does not answer, or answers for another one */
    async get(): Promise<Issuer> {
      if (known && (known.issuer.revocationsUri !== undefined || clock.now() - known.at < REREAD_MS))
        return known.issuer;
      if (failed && clock.now() - failed.at < RETRY_MS) {
        if (known) return known.issuer;
        throw failed.error;
      }
      reading ??= discover().finally(() => {
        reading = undefined;
      });
      try {
        const issuer = await reading;
        // Keys that were fetched before remain.
        known = { issuer: known ? { ...issuer, keys: known.issuer.keys } : issuer, at: clock.now() };
        failed = undefined;
      } catch (error) {
        failed = { at: clock.now(), error };
        if (!known) throw error;
      }
      return known.issuer;
    },
  };
}

type Metadata = Record<string, unknown>;

async function readJson(fetch: Fetch, url: string): Promise<Metadata> {
  const response = await fetch(url, { redirect: 'error', signal: AbortSignal.timeout(TIMEOUT_MS) });
  if (response.status !== 200) throw new Error(`${url} answers with ${response.status}.`);
  const value: unknown = await (await bounded(response)).json();
  if (typeof value !== 'object' || value === null) throw new Error(`${url} is no JSON object.`);
  return value as Metadata;
}

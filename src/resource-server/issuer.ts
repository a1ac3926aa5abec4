import type { JWTVerifyGetKey } from 'jose';
import { type Clock, SECOND } from '../kernel/clock.js';

/** What a resource server knows of its authorization server: its metadata (RFC 8414) and its keys. */

export interface Issuer {
  keys: JWTVerifyGetKey;
  /** Where the list of revoked access tokens is; absent if the issuer has none. */
  revocationsUri: string | undefined;
}

export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

export interface IssuerSource {
  /** Reads the metadata once. @throws if the issuer does not answer, or answers for another one */
  get(): Promise<Issuer>;
}

const TIMEOUT_MS = 5 * SECOND;
/** After a failure, requests are refused without another attempt for this time. */
const RETRY_MS = SECOND;
const MAX_BYTES = 256 * 1024;

export function createIssuerSource(
  issuer: string,
  { clock, fetch }: { clock: Clock; fetch: Fetch },
): IssuerSource {
  let known: Promise<Issuer> | undefined;
  let failed: { at: number; error: unknown } | undefined;

  const discover = async (): Promise<Issuer> => {
    const { createRemoteJWKSet, customFetch } = await import('jose');
    const metadata = await readJson(fetch, `${issuer}/.well-known/openid-configuration`);
    const { issuer: name, jwks_uri: jwksUri, revocation_list_uri: revocationsUri } = metadata;
    // OpenID Connect Discovery §4.3: otherwise one issuer could answer for another one.
    if (name !== issuer) throw new Error(`The metadata of ${issuer} names another issuer.`);
    if (typeof jwksUri !== 'string') throw new Error(`The metadata of ${issuer} has no jwks_uri.`);
    return {
      keys: createRemoteJWKSet(new URL(jwksUri), { timeoutDuration: TIMEOUT_MS, [customFetch]: fetch }),
      revocationsUri: typeof revocationsUri === 'string' ? revocationsUri : undefined,
    };
  };

  return {
    async get() {
      if (failed && clock.now() - failed.at < RETRY_MS) throw failed.error;
      known ??= discover();
      try {
        return await known;
      } catch (error) {
        known = undefined;
        failed = { at: clock.now(), error };
        throw error;
      }
    },
  };
}

async function readJson(fetch: Fetch, url: string): Promise<Record<string, unknown>> {
  const response = await fetch(url, { redirect: 'error', signal: AbortSignal.timeout(TIMEOUT_MS) });
  if (response.status !== 200) throw new Error(`${url} answers with ${response.status}.`);
  const text = await response.text();
  if (text.length > MAX_BYTES) throw new Error(`${url} answers with more than ${MAX_BYTES} characters.`);
  const value: unknown = JSON.parse(text);
  if (typeof value !== 'object' || value === null) throw new Error(`${url} is no JSON object.`);
  return value as Record<string, unknown>;
}

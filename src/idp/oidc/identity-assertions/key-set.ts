import type { JSONWebKeySet } from 'jose';
import { isLoopback } from '../../../core/config/public-url.js';
import { DocumentUnavailable, type ReadOptions } from '../../../core/outbound/documents.js';
import { DOCUMENT_REQUESTS, JWK_SET_TYPE, parseJson } from '../client-assertion.js';
import type { AssertionDependencies } from './issue.js';

const MAX_KEYS = 50;

/**
 * The published keys of another provider, by its metadata (OpenID Connect Discovery §4), both through the cache in the store;
 * `null` while they cannot be read.
 *
 * @param notBefore copies from before this time are not used
 * @throws RATE_LIMITED
 */
export async function readKeySet(
  issuer: string,
  ip: string,
  { readDocument, throttle }: AssertionDependencies,
  notBefore = 0,
): Promise<JSONWebKeySet | null> {
  const read = (uri: string, more: Pick<ReadOptions, 'problemOf'> & Partial<ReadOptions>) =>
    readDocument(uri, { pay: () => throttle.count(DOCUMENT_REQUESTS, ip), allowsStale: true, ...more });
  try {
    const metadata = await read(`${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`, {
      problemOf: (text) => (jwksUriIn(text, issuer) === null ? 'it is no metadata of the issuer' : null),
    });
    const uri = jwksUriIn(metadata.text, issuer);
    if (uri === null) return null;
    const { text } = await read(uri, {
      problemOf: (body) => (keysIn(body) ? null : 'it is no JWK Set'),
      contentType: JWK_SET_TYPE,
      notBefore,
    });
    return keysIn(text);
  } catch (error) {
    if (error instanceof DocumentUnavailable) return null;
    throw error;
  }
}

/** The address of the keys, if the metadata is that of the issuer. */
function jwksUriIn(text: string, issuer: string): string | null {
  const { issuer: named, jwks_uri: uri } = (parseJson(text) ?? {}) as Record<string, unknown>;
  if (named !== issuer || typeof uri !== 'string' || !URL.canParse(uri)) return null;
  const { protocol, hostname, username } = new URL(uri);
  // The outbound guard decides whether this machine may be asked.
  const isSafe = protocol === 'https:' || (protocol === 'http:' && isLoopback(hostname));
  return isSafe && username === '' ? uri : null;
}

function keysIn(text: string): JSONWebKeySet | null {
  const { keys } = (parseJson(text) ?? {}) as { keys?: unknown };
  const isSet =
    Array.isArray(keys) &&
    keys.length <= MAX_KEYS &&
    keys.every((key) => typeof key === 'object' && key !== null && !Array.isArray(key));
  return isSet ? { keys } : null;
}

import { createLocalJWKSet, type JSONWebKeySet, type JWTPayload } from 'jose';
import { isLoopback } from '../../../core/config/public-url.js';
import type { Clock } from '../../../core/kernel/clock.js';
import { DocumentUnavailable, type ReadOptions } from '../../../core/outbound/documents.js';
import type { Throttle } from '../../../core/throttle/throttle.js';
import {
  claimsSignedBy,
  DOCUMENT_REQUESTS,
  JWK_SET_TYPE,
  MIN_REFRESH_MS,
  parseJson,
} from '../client-assertion.js';

const MAX_KEYS = 50;
/** Platforms publish certificates with their keys. */
const MAX_BYTES = 128 * 1024;

/** What is accepted of other issuers, which sign with RSA more often than not. */
const ALGORITHMS = ['EdDSA', 'Ed25519', 'ES256', 'PS256', 'RS256'];

/** What reads the keys of other issuers. */
export interface IssuerDependencies {
  readDocument(uri: string, options: ReadOptions): Promise<{ text: string }>;
  throttle: Pick<Throttle, 'count'>;
  clock: Clock;
}

/**
 * The claims that an issuer has signed, or why there are none.
 * @param jwks its keys, if they are not read from it
 */
export async function verifyByIssuer(
  assertion: string,
  { issuer, jwks }: { issuer: string; jwks?: JSONWebKeySet['keys'] },
  ip: string,
  deps: IssuerDependencies,
): Promise<{ claims: JWTPayload; problem?: never } | { claims?: never; problem: string }> {
  const { clock } = deps;
  // The issuer may have a new key since.
  for (const notBefore of jwks ? [0] : [0, clock.now() - MIN_REFRESH_MS]) {
    const known = jwks ? { keys: jwks } : await readKeySet(issuer, ip, deps, notBefore);
    if (!known) return { problem: 'the keys of the issuer cannot be read' };
    const claims = await claimsSignedBy(assertion, createLocalJWKSet(known), ALGORITHMS, clock.now());
    if (claims) return { claims };
  }
  return { problem: 'it is not signed by the issuer, or not valid now' };
}

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
  { readDocument, throttle }: Pick<IssuerDependencies, 'readDocument' | 'throttle'>,
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
      maxBytes: MAX_BYTES,
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

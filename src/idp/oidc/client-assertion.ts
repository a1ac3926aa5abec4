import {
  decodeJwt,
  decodeProtectedHeader,
  errors,
  importJWK,
  type JWTPayload,
  type JWTVerifyGetKey,
  jwtVerify,
} from 'jose';
import { type Clock, MINUTE, SECOND, toSeconds } from '../../core/kernel/clock.js';
import {
  CLIENT_KEY_ALGORITHMS,
  fitsAlgorithm,
  type PublicJwk,
  readJwkSet,
} from '../../core/kernel/public-jwk.js';
import { sha256 } from '../../core/kernel/secrets.js';
import { createSingleUse, type UsedOnce } from '../../core/ops/single-use.js';
import { type Documents, DocumentUnavailable } from '../../core/outbound/documents.js';
import type { Collection } from '../../core/storage/collection.js';
import { fixedWindow, type Throttle } from '../../core/throttle/throttle.js';
import type { Client, Principal } from './directory.js';

/** What can sign an assertion. An agent may have a token of its platform instead. */
export type KeyHolder = Pick<Client, 'id' | 'jwks' | 'jwksUri' | 'agent' | 'profile'>;

/** For everything before the signature is verified, so that the answer tells nothing about clients. */
export const UNVERIFIED = 'Client authentication failed.';

export const MAX_LENGTH = 8 * 1024;

/** Of clients with the profile FAPI 2.0 (§5.3.2.1, §5.4.1). */
const FAPI_AUDIENCE = 'aud of the assertion must be the issuer, as a string.';
const FAPI_ALGORITHM = 'The assertion must be signed with PS256, ES256 or EdDSA.';

const MAX_JTI_LENGTH = 256;

const MAX_LIFETIME_SECONDS = 300;
const MAX_LIFETIME_OF_LIBRARIES_SECONDS = 3600;

/** How much later than here it may be where the assertion was made. */
export const TOLERANCE_SECONDS = 60;

/** How long a published set of keys is not requested again for a key that it lacks. */
export const MIN_REFRESH_MS = MINUTE;

/** Requests for keys and client metadata that one address block may cause. */
export const DOCUMENT_REQUESTS = fixedWindow('documents', 30, 10 * MINUTE);

/** `typ` of client assertions. Those of other kinds of tokens are refused (RFC 8725 §3.11). */
const TYPES: readonly unknown[] = [undefined, 'JWT', 'jwt', 'client-authentication+jwt'];

export const JWK_SET_TYPE = /^application\/(jwk-set\+)?json$/i;

/** Authentication of clients by a signature (RFC 7523 §3, with the rules of draft-ietf-oauth-rfc7523bis). */
export function createClientAssertions({
  usedAssertions,
  readDocument,
  throttle,
  issuer,
  clock,
  acceptsTokenEndpoint = false,
  verifyWorkload,
}: {
  usedAssertions: Collection<UsedOnce>;
  readDocument: Documents['read'];
  throttle: Pick<Throttle, 'count'>;
  issuer(): string;
  clock: Clock;
  /** Whether `aud` may be the token endpoint (OpenID Connect Core §9), and assertions may be valid for an hour. */
  acceptsTokenEndpoint?: boolean;
  /** Whether a token of another issuer proves the agent. */
  verifyWorkload(agent: Principal, assertion: string, ip: string): Promise<boolean>;
}) {
  const maxLifetime = acceptsTokenEndpoint ? MAX_LIFETIME_OF_LIBRARIES_SECONDS : MAX_LIFETIME_SECONDS;
  const { claim } = createSingleUse(usedAssertions);

  const publishedKeys = async (uri: string, ip: string, notBefore = 0): Promise<PublicJwk[]> => {
    const { text } = await readDocument(uri, {
      pay: () => throttle.count(DOCUMENT_REQUESTS, ip),
      problemOf: (body) => {
        const read = readJwkSet(parseJson(body), true);
        return 'problem' in read ? read.problem : null;
      },
      contentType: JWK_SET_TYPE,
      allowsStale: true,
      notBefore,
    });
    const read = readJwkSet(parseJson(text), true);
    return 'keys' in read ? read.keys : [];
  };

  /** The claims that one of the keys has signed, else `null`. */
  const verifySignature = async (
    assertion: string,
    keys: readonly PublicJwk[],
  ): Promise<JWTPayload | null> => {
    const { alg, kid } = headerOf(assertion) ?? {};
    const algorithm = CLIENT_KEY_ALGORITHMS.find((known) => known === alg);
    if (algorithm === undefined) return null;
    const fitting = keys.filter((key) => fitsAlgorithm(key, algorithm));
    const named = fitting.filter((key) => key.kid !== undefined && key.kid === kid);
    for (const jwk of named.length > 0 ? named : fitting.filter((key) => key.kid === undefined || !kid)) {
      const key = await importJWK({ ...jwk }, algorithm);
      const claims = await claimsSignedBy(assertion, () => key, [algorithm], clock.now());
      if (claims) return claims;
    }
    return null;
  };

  const readClaims = async (client: KeyHolder, assertion: string, ip: string): Promise<JWTPayload | null> => {
    if (client.jwks) return verifySignature(assertion, client.jwks);
    const { jwksUri } = client;
    if (jwksUri === undefined) return null;
    try {
      const claims = await verifySignature(assertion, await publishedKeys(jwksUri, ip));
      // The client may have a new key since.
      return (
        claims ??
        (await verifySignature(assertion, await publishedKeys(jwksUri, ip, clock.now() - MIN_REFRESH_MS)))
      );
    } catch (error) {
      if (error instanceof DocumentUnavailable) return null;
      throw error;
    }
  };

  const problemOf = (client: KeyHolder, claims: JWTPayload): string | null => {
    const { iss, sub, aud, exp, iat = 0, jti } = claims;
    if (iss !== client.id || sub !== client.id) return 'iss and sub of the assertion must be the client_id.';
    const isForToken = acceptsTokenEndpoint && isOnlyAudience(`${issuer()}/token`, aud);
    if (!isForToken && !isOnlyAudience(issuer(), aud))
      return acceptsTokenEndpoint
        ? 'aud of the assertion must be the issuer or the token endpoint.'
        : 'aud of the assertion must be the issuer.';
    const now = toSeconds(clock.now());
    if (client.profile && aud !== issuer()) return FAPI_AUDIENCE;
    if (client.profile && !(iat <= now + TOLERANCE_SECONDS)) return 'iat of the assertion is in the future.';
    if (exp === undefined || exp <= now) return 'The assertion has expired.';
    if (exp > now + maxLifetime) return `exp of the assertion must be at most ${maxLifetime} seconds ahead.`;
    if (typeof jti !== 'string' || jti === '' || jti.length > MAX_JTI_LENGTH)
      return `The assertion must have a jti of at most ${MAX_JTI_LENGTH} characters.`;
    return null;
  };

  const read = (assertion: string): JWTPayload => {
    try {
      return assertion.length > MAX_LENGTH ? {} : decodeJwt(assertion);
    } catch {
      return {};
    }
  };

  return {
    /** The client that an assertion claims to be, unverified. */
    subjectOf: (assertion: string): string | undefined => read(assertion).sub,

    /** Verifies an assertion and uses it up, if the client itself has made it. Returns what is wrong with it. @throws RATE_LIMITED */
    async verify(client: KeyHolder, assertion: string, ip: string): Promise<string | null> {
      if (assertion.length > MAX_LENGTH) return UNVERIFIED;
      if (client.agent?.workloads?.length && read(assertion).iss !== client.id)
        return (await verifyWorkload(client.agent, assertion, ip)) ? null : UNVERIFIED;
      const claims = await readClaims(client, assertion, ip);
      if (!claims) return UNVERIFIED;
      if (client.profile && headerOf(assertion)?.alg === 'RS256') return FAPI_ALGORITHM;
      const problem = problemOf(client, claims);
      if (problem !== null) return problem;
      const { jti, exp = 0 } = claims;
      const isFirst = await claim(sha256(JSON.stringify([client.id, jti])), exp * SECOND);
      return isFirst ? null : 'The assertion was used before.';
    },
  };
}

function headerOf(assertion: string): { alg?: string; kid?: string } | null {
  try {
    const { alg, kid, typ } = decodeProtectedHeader(assertion);
    return TYPES.includes(typ)
      ? { ...(alg !== undefined && { alg }), ...(kid !== undefined && { kid }) }
      : null;
  } catch {
    return null;
  }
}

/** The claims if such a key has signed them, else `null`. The caller checks the type, and times except `nbf`. */
export async function claimsSignedBy(
  assertion: string,
  findKey: JWTVerifyGetKey,
  algorithms: string[],
  now: number,
): Promise<JWTPayload | null> {
  const currentDate = new Date(now);
  try {
    const options = { algorithms, currentDate, clockTolerance: TOLERANCE_SECONDS };
    return (await jwtVerify(assertion, findKey, options)).payload;
  } catch (error) {
    // WebCrypto refuses keys with values that are not valid.
    const isInvalidKey = error instanceof TypeError || error instanceof DOMException;
    if (error instanceof errors.JOSEError || isInvalidKey) return null;
    throw error;
  }
}

/** An assertion for another server must not work here, nor this one there. */
export const isOnlyAudience = (audience: string, aud: JWTPayload['aud']): boolean =>
  aud === audience || (Array.isArray(aud) && aud.length === 1 && aud[0] === audience);

/** `undefined` for what is not JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

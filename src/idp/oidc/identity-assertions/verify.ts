import { decodeJwt, decodeProtectedHeader, type JWTPayload } from 'jose';
import { SECOND, toSeconds } from '../../../core/kernel/clock.js';
import type { TrustedIssuerDocument } from '../../trust/store.js';
import { isOnlyAudience, MAX_LENGTH, TOLERANCE_SECONDS } from '../client-assertion.js';
import type { AssertionDependencies } from './issue.js';
import { verifyByIssuer } from './key-set.js';
import { ASSERTION_TYPE, MAX_LIFETIME_SECONDS } from './trust.js';

/** The verification of identity assertions of other providers. */

export interface VerifiedAssertion {
  issuer: TrustedIssuerDocument;
  subject: string;
  resources: readonly string[];
  scope: string | undefined;
  /** Thumbprint of the key that the assertion is bound to. */
  key: string | undefined;
  authTime: number;
  amr: string[];
  /** Unique among the assertions of the issuer. */
  jti: string;
  expiresAt: number;
}

const MAX_TEXT_LENGTH = 512;
const MAX_ENTRIES = 10;

/** What changes the meaning of an assertion and is not supported: without it, the access token would claim too much. */
const UNSUPPORTED = ['act', 'authorization_details', 'tenant', 'aud_tenant'] as const;

/** Before the signature is verified, the answer says nothing else. */
const UNTRUSTED = 'The assertion is not signed by an issuer that is trusted for this client.';

/** Returns the problem of an assertion that does not allow this client anything. @throws RATE_LIMITED */
export async function verifyAssertion(
  assertion: string,
  clientId: string,
  ip: string,
  deps: AssertionDependencies,
): Promise<VerifiedAssertion | { problem: string }> {
  const issuer = await findIssuer(assertion, clientId, deps);
  const { claims } = issuer ? await verifyByIssuer(assertion, issuer, ip, deps) : {};
  if (!issuer || !claims) return { problem: UNTRUSTED };
  const problem = problemOf(claims, clientId, deps.issuer(), toSeconds(deps.clock.now()));
  if (problem !== null) return { problem };
  const { sub = '', jti, iat = 0, exp = 0, resource, scope, cnf, auth_time: authTime, amr } = claims;
  return {
    issuer,
    subject: sub,
    resources: isText(resource) ? [resource] : isTexts(resource) ? resource : [],
    scope: typeof scope === 'string' ? scope : undefined,
    key: (cnf as { jkt: string } | undefined)?.jkt,
    authTime: Math.min(typeof authTime === 'number' ? authTime : iat, iat) * SECOND,
    amr: isTexts(amr) ? amr : [],
    jti: String(jti),
    expiresAt: Math.ceil(exp * SECOND),
  };
}

/** The issuer that an assertion names, unverified, if the operator trusts it for the client. */
async function findIssuer(
  assertion: string,
  clientId: string,
  { trust, issuer }: AssertionDependencies,
): Promise<TrustedIssuerDocument | null> {
  if (assertion.length > MAX_LENGTH) return null;
  const named = issuerOf(assertion);
  // An access token for an assertion of its own would widen what the person has allowed.
  const found = named === undefined || named === issuer() ? null : await trust.findIssuer(named);
  return found?.clients.includes(clientId) ? found : null;
}

function issuerOf(assertion: string): string | undefined {
  try {
    const { typ } = decodeProtectedHeader(assertion);
    const { iss } = decodeJwt(assertion);
    return typ === ASSERTION_TYPE && typeof iss === 'string' ? iss : undefined;
  } catch {
    return undefined;
  }
}

function problemOf(claims: JWTPayload, clientId: string, audience: string, now: number): string | null {
  const { aud, sub, exp, iat, jti, client_id: named, cnf, resource, scope } = claims;
  if (!isOnlyAudience(audience, aud)) return 'aud of the assertion must be the issuer of this server.';
  if (named !== clientId) return 'client_id of the assertion is another client.';
  if (!isText(sub)) return `sub of the assertion must be a string of at most ${MAX_TEXT_LENGTH} characters.`;
  if (!isText(jti)) return `jti of the assertion must be a string of at most ${MAX_TEXT_LENGTH} characters.`;
  if (!isTime(iat) || !isTime(exp)) return 'The assertion must have iat and exp.';
  if (exp <= now) return 'The assertion has expired.';
  if (iat > now + TOLERANCE_SECONDS) return 'iat of the assertion is in the future.';
  if (exp - iat > MAX_LIFETIME_SECONDS)
    return `The assertion must be valid for at most ${MAX_LIFETIME_SECONDS} seconds.`;
  const unsupported = UNSUPPORTED.find((name) => claims[name] !== undefined);
  if (unsupported !== undefined) return `The claim ${unsupported} is not supported.`;
  if (cnf !== undefined && !isText((cnf as { jkt?: unknown } | null)?.jkt))
    return 'cnf of the assertion must have the member jkt.';
  if (resource !== undefined && !isText(resource) && !isTexts(resource))
    return `resource of the assertion must be one to ${MAX_ENTRIES} strings.`;
  if (scope !== undefined && typeof scope !== 'string') return 'scope of the assertion must be a string.';
  return null;
}

const isText = (value: unknown): value is string =>
  typeof value === 'string' && value !== '' && value.length <= MAX_TEXT_LENGTH;

const isTexts = (value: unknown): value is string[] =>
  Array.isArray(value) && value.length > 0 && value.length <= MAX_ENTRIES && value.every(isText);

const isTime = (value: unknown): value is number => typeof value === 'number' && Number.isFinite(value);

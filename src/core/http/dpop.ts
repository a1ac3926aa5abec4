import { createHmac } from 'node:crypto';
import type { JWK, JWTPayload } from 'jose';
import { type Clock, MINUTE, SECOND, toSeconds } from '../kernel/clock.js';
import { secretsEqual, sha256 } from '../kernel/secrets.js';

/** Proofs of possession of a key (DPoP, RFC 9449), for an authorization server and for a resource server. */

/** The algorithms that a proof may be signed with, as metadata names them. */
export const DPOP_ALGORITHMS = ['EdDSA', 'ES256'] as const;

/** How old a proof may be: enough for a slow network, and for how long its `jti` is remembered. */
export const PROOF_LIFETIME_MS = MINUTE;

/** How far ahead the clock of a client may be. */
const AHEAD_MS = 10 * SECOND;

/** Remembers which proofs were used. Several processes need a shared one. */
export interface ReplayCache {
  /** Returns whether `key` was unknown, and remembers it until `expiresAt` (milliseconds since 1970). */
  claim(key: string, expiresAt: number): Promise<boolean>;
}

export interface ProofRequest {
  /** Every `DPoP` header of the request: exactly one is valid. */
  proofs: readonly string[];
  method: string;
  /** The address that the client has called, absolute; its query does not count. */
  url: string;
  /** Only at a resource server: the proof must contain its hash. */
  accessToken?: string;
}

/** Why a proof is refused: `use_dpop_nonce` asks the client for another one with the current nonce. */
export class DpopError extends Error {
  override readonly name = 'DpopError';

  readonly code: 'invalid_dpop_proof' | 'use_dpop_nonce';

  constructor(code: DpopError['code'], message: string) {
    super(message);
    this.code = code;
  }
}

const invalid = (reason: string) => new DpopError('invalid_dpop_proof', reason);

/** @param nonces if present, every proof must contain a current one */
export function createDpopVerifier({
  clock,
  replay,
  nonces,
}: {
  clock: Clock;
  replay: ReplayCache;
  nonces?: DpopNonces | undefined;
}) {
  return {
    /** The SHA-256 thumbprint (RFC 7638) of the key that has signed the proof. @throws DpopError */
    async verify({ proofs, method, url, accessToken }: ProofRequest): Promise<string> {
      const [proof] = proofs;
      if (proof === undefined || proofs.length > 1) throw invalid('Exactly one DPoP header is required.');
      const { key, claims } = await open(proof);
      const { jti, htm, htu, iat, ath, nonce } = claims;
      if (typeof jti !== 'string' || jti.length === 0 || jti.length > 256)
        throw invalid('The claim jti must have 1 to 256 characters.');
      if (htm !== method) throw invalid('The claim htm is not the method of the request.');
      if (typeof htu !== 'string' || targetOf(htu) !== targetOf(url))
        throw invalid('The claim htu is not the address of the request.');
      if (typeof iat !== 'number') throw invalid('The claim iat is missing.');
      const age = clock.now() - iat * 1000;
      if (age > PROOF_LIFETIME_MS || age < -AHEAD_MS)
        throw invalid('The proof is too old, or from the future.');
      if (accessToken !== undefined && ath !== sha256(accessToken))
        throw invalid('The claim ath is not the hash of the access token.');
      if (nonces && !(typeof nonce === 'string' && nonces.isCurrent(nonce)))
        throw new DpopError('use_dpop_nonce', 'The proof needs the nonce of the header DPoP-Nonce.');
      const { calculateJwkThumbprint } = await import('jose');
      const thumbprint = await calculateJwkThumbprint(key);
      // Clients choose `jti`, so another client may choose the same one.
      const expiresAt = iat * 1000 + PROOF_LIFETIME_MS + AHEAD_MS;
      if (!(await replay.claim(sha256(`${thumbprint} ${jti}`), expiresAt)))
        throw invalid('The proof was used before.');
      return thumbprint;
    },
  };
}

async function open(proof: string): Promise<{ key: JWK; claims: JWTPayload }> {
  const { EmbeddedJWK, compactVerify, errors } = await import('jose');
  try {
    const { payload, protectedHeader } = await compactVerify(proof, EmbeddedJWK, {
      algorithms: ['Ed25519', ...DPOP_ALGORITHMS],
    });
    const { typ, jwk } = protectedHeader;
    if (typ?.toLowerCase() !== 'dpop+jwt' || !jwk || 'd' in jwk) throw invalid('The proof is no DPoP proof.');
    const claims: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(payload));
    if (typeof claims !== 'object' || claims === null) throw invalid('The proof has no claims.');
    return { key: jwk, claims: claims as JWTPayload };
  } catch (error) {
    if (error instanceof DpopError) throw error;
    const isMalformed =
      error instanceof errors.JOSEError || error instanceof SyntaxError || error instanceof TypeError;
    // An invalid key is reported by Web Cryptography.
    if (isMalformed || error instanceof DOMException) throw invalid('The signature of the proof is invalid.');
    throw error;
  }
}

/** RFC 9449 §4.3: without query and fragment, after normalization (RFC 3986 §6.2.2 and §6.2.3). */
function targetOf(url: string): string | undefined {
  if (!URL.canParse(url)) return undefined;
  const { origin, pathname } = new URL(url);
  return origin + pathname;
}

/** Nonces that any process with the same secret recognizes. */
export type DpopNonces = ReturnType<typeof createDpopNonces>;

/** A nonce is accepted in the period in which it was issued and in the next one. */
const NONCE_PERIOD_S = 150;

/** @param secret of at least 256 bits; for any other purpose, another one must be derived */
export function createDpopNonces(clock: Clock, secret: string) {
  const nonceOf = (period: number): string =>
    createHmac('sha256', secret).update(`DPoP nonce\0${period}`).digest('base64url');
  const period = () => Math.floor(toSeconds(clock.now()) / NONCE_PERIOD_S);
  return {
    issue: (): string => nonceOf(period()),
    isCurrent: (nonce: string): boolean =>
      secretsEqual(nonce, nonceOf(period())) || secretsEqual(nonce, nonceOf(period() - 1)),
  };
}

/** Entries of the memory: 70 s of 1,400 proofs a second. */
const MAX_REMEMBERED = 100_000;

/**
 * For one process. When it is full, proofs are refused until the oldest expire: forgetting one would allow its replay.
 */
export function createMemoryReplayCache(clock: Clock): ReplayCache {
  const known = new Map<string, number>();
  return {
    async claim(key, expiresAt) {
      const now = clock.now();
      // In the order of insertion, which is nearly that of expiry.
      for (const [oldest, expiry] of known) {
        if (expiry > now) break;
        known.delete(oldest);
      }
      if (known.has(key) || known.size >= MAX_REMEMBERED) return false;
      known.set(key, expiresAt);
      return true;
    },
  };
}

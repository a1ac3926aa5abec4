import { createHmac } from 'node:crypto';
import { createDpopNonces, createDpopVerifier, DpopError } from '../../core/http/dpop.js';
import type { Clock } from '../../core/kernel/clock.js';
import { createSingleUse, type UsedOnce } from '../../core/ops/single-use.js';
import type { Collection } from '../../core/storage/collection.js';
import { oidcErrors } from './errors.js';

/** Proofs of possession of a key at the endpoints of the provider (DPoP, RFC 9449). */

/**
 * Verifies the proof of a request and uses it up; repeated calls return the same key. Called where the rest of the request
 * is valid, so that only those who may get a token can make the provider store anything.
 *
 * @returns the thumbprint of the key
 * @throws invalid_dpop_proof, use_dpop_nonce
 */
export type Prove = (accessToken?: string) => Promise<string>;

export interface ProvenRequest {
  method: string;
  /** Below the issuer. */
  path: string;
  /** The values of the header DPoP. */
  proofs: readonly string[];
}

export type Proofs = ReturnType<typeof createProofs>;

/** @param seeds the first issues nonces, all of them verify */
export function createProofs({
  usedProofs,
  seeds,
  issuer,
  clock,
}: {
  usedProofs: Collection<UsedOnce>;
  seeds: readonly [string, ...string[]];
  issuer(): string;
  clock: Clock;
}) {
  const [current, ...others] = seeds;
  const nonces = createDpopNonces(clock, nonceSecret(current));
  const former = others.map((seed) => createDpopNonces(clock, nonceSecret(seed)));
  const replay = createSingleUse(usedProofs);
  const withNonce = createDpopVerifier({
    clock,
    replay,
    nonces: {
      issue: nonces.issue,
      isCurrent: (nonce) => [nonces, ...former].some((known) => known.isCurrent(nonce)),
    },
  });
  const withoutNonce = createDpopVerifier({ clock, replay });

  return {
    /** For the header DPoP-Nonce: the value that the next proof must contain. */
    nonce: nonces.issue,

    /** Proofs for /token and /par contain a nonce; with an access token, its hash. */
    prover({ method, path, proofs }: ProvenRequest): Prove {
      const verify = async (accessToken?: string): Promise<string> => {
        const verifier = accessToken === undefined ? withNonce : withoutNonce;
        const bound = accessToken === undefined ? {} : { accessToken };
        try {
          return await verifier.verify({ proofs, method, url: issuer() + path, ...bound });
        } catch (error) {
          if (error instanceof DpopError) throw oidcErrors[error.code]({ message: error.message });
          throw error;
        }
      };
      let proven: Promise<string> | undefined;
      return (accessToken) => {
        proven ??= verify(accessToken);
        return proven;
      };
    },
  };
}

/** A secret of its own, so that no other use of the seed can produce a nonce. */
const nonceSecret = (seed: string): string =>
  createHmac('sha256', seed).update('DPoP nonces').digest('base64url');

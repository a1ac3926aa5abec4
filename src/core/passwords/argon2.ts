import { emitWarning } from 'node:process';
import argon2 from 'argon2';

/** argon2 (RFC 9106) with two libraries: `argon2` verifies every variant, `@node-rs/argon2` our own format twice as fast. */

/** Cost of one hash: memory in KiB, passes, lanes. */
export interface HashingCost {
  /** KiB. */
  memoryCost: number;
  /** Passes. */
  timeCost: number;
  /** Lanes. */
  parallelism: number;
}

/** OWASP's first choice for argon2id: 19 MiB, two passes, one lane. */
export const STANDARD_COST: HashingCost = { memoryCost: 19_456, timeCost: 2, parallelism: 1 };

/** Maximum cost of a stored hash; a higher one is an attack on the server. */
const MAX_COST: HashingCost = { memoryCost: 262_144, timeCost: 10, parallelism: 8 };

/** The argon2id hash in PHC form. @param salt 16 bytes */
export function hashArgon2(password: string, salt: Buffer, cost: HashingCost): Promise<string> {
  return argon2.hash(password, { type: argon2.argon2id, salt, ...cost });
}

/** The format of `hashArgon2`; captures the number of lanes. */
const OWN_FORMAT = /^\$argon2id\$v=19\$m=\d+,t=\d+,p=(\d+)\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$/;

/** Whether an acceptable hash differs from those of `hashArgon2` in format or cost, and therefore in verification time. */
export function isOutdatedArgon2(stored: string, cost: HashingCost): boolean {
  return !OWN_FORMAT.test(stored) || argon2.needsRehash(stored, cost);
}

/** Whether the parameters of a stored hash, which `argon2` applies, are within the limits of RFC 9106 and of this server. */
export function isAcceptableArgon2(stored: string): boolean {
  const parameters =
    /^\$argon2(?:id|i|d)\$v=19\$m=(\d{1,9}),t=(\d{1,9}),p=(\d{1,9})\$[A-Za-z0-9+/]{11,}\$[A-Za-z0-9+/]{16,}$/.exec(
      stored,
    );
  if (!parameters) return false;
  const [memory, time, lanes] = parameters.slice(1).map(Number) as [number, number, number];
  const isEnough = lanes >= 1 && time >= 1 && memory >= 8 * lanes;
  return (
    isEnough && memory <= MAX_COST.memoryCost && time <= MAX_COST.timeCost && lanes <= MAX_COST.parallelism
  );
}

/** The family of an acceptable hash, which identifies its cost, and a decoy of the same cost. */
export function argon2WorkOf(stored: string): { family: string; decoy: string } {
  const [, parameters = '', salt = '', key = ''] = /^\$(.+)\$([^$]+)\$([^$]+)$/.exec(stored) ?? [];
  // Hashes in our own format may be verified by the faster library.
  const form = OWN_FORMAT.test(stored) ? '' : ', other lengths';
  return {
    family: parameters.replace('$v=19$', ' ') + form,
    decoy: `$${parameters}$${'A'.repeat(salt.length)}$${'A'.repeat(key.length)}`,
  };
}

type Verify = (stored: string, password: string) => Promise<boolean>;

/**
 * Verifies a password against an acceptable hash.
 *
 * @param load loads the fast library; where it has no build, `argon2` is used instead
 */
export function createArgon2Verify(load: () => Promise<Verify> = loadFast): Verify {
  let fast: Promise<Verify> | undefined;
  const loadOnce = () =>
    load().catch((error: Error) => {
      emitWarning(
        `Password verification runs at half speed because @node-rs/argon2 cannot be loaded: ${error.message}`,
      );
      return verifyAny;
    });
  return async (stored, password) => {
    // The fast library computes several lanes sequentially.
    if (OWN_FORMAT.exec(stored)?.[1] !== '1') return verifyAny(stored, password);
    fast ??= loadOnce();
    return (await fast)(stored, password);
  };
}

const verifyAny: Verify = (stored, password) => argon2.verify(stored, password);

/** Loaded at the first sign-in, to keep the start fast. */
async function loadFast(): Promise<Verify> {
  const { default: fast } = await import('@node-rs/argon2');
  // It rejects spare bits and leading zeros that `argon2` accepts.
  return (stored, password) => fast.verify(stored, password).catch(() => verifyAny(stored, password));
}

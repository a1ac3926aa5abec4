import { emitWarning } from 'node:process';
import argon2 from 'argon2';

/** argon2 (RFC 9106) by two libraries: `argon2` knows every kind of hash, the other one ours in half the time. */

/** Cost of one hash: memory in KiB, passes, lanes. */
export interface HashingCost {
  memoryCost: number;
  timeCost: number;
  parallelism: number;
}

/** OWASP's first choice for argon2id: 19 MiB, two passes, one lane. */
export const STANDARD_COST: HashingCost = { memoryCost: 19_456, timeCost: 2, parallelism: 1 };

/** A stored hash may ask for at most this much work; more is a poisoned record, not a password. */
const MOST: HashingCost = { memoryCost: 262_144, timeCost: 10, parallelism: 8 };

/** The argon2id hash in PHC form. @param salt 16 bytes */
export function hashArgon2(password: string, salt: Buffer, cost: HashingCost): Promise<string> {
  return argon2.hash(password, { type: argon2.argon2id, salt, ...cost });
}

/** What `hashArgon2` makes, and in how many lanes. */
const OURS = /^\$argon2id\$v=19\$m=\d+,t=\d+,p=(\d+)\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$/;

/** Whether `hashArgon2` would make another hash than this acceptable one: then it takes longer or shorter to verify. */
export function isOutdatedArgon2(stored: string, cost: HashingCost): boolean {
  return !OURS.test(stored) || argon2.needsRehash(stored, cost);
}

/**
 * argon2 obeys the parameters inside a stored hash, and a planted one could ask for gigabytes. At what is below
 * the least of RFC 9106 it throws.
 */
export function isAcceptableArgon2(stored: string): boolean {
  const parameters =
    /^\$argon2(?:id|i|d)\$v=19\$m=(\d{1,9}),t=(\d{1,9}),p=(\d{1,9})\$[A-Za-z0-9+/]{11,}\$[A-Za-z0-9+/]{16,}$/.exec(
      stored,
    );
  if (!parameters) return false;
  const [memory, time, lanes] = parameters.slice(1).map(Number) as [number, number, number];
  const isEnough = lanes >= 1 && time >= 1 && memory >= 8 * lanes;
  return isEnough && memory <= MOST.memoryCost && time <= MOST.timeCost && lanes <= MOST.parallelism;
}

/** What distinguishes the work of an acceptable hash of argon2 from others, and a hash of the same work. */
export function argon2WorkOf(stored: string): { family: string; decoy: string } {
  const [, parameters = '', salt = '', key = ''] = /^\$(.+)\$([^$]+)\$([^$]+)$/.exec(stored) ?? [];
  // Hashes in our form may be verified by the faster library.
  const form = OURS.test(stored) ? '' : ', other lengths';
  return {
    family: parameters.replace('$v=19$', ' ') + form,
    decoy: `$${parameters}$${'A'.repeat(salt.length)}$${'A'.repeat(key.length)}`,
  };
}

type Verify = (stored: string, password: string) => Promise<boolean>;

/**
 * Whether this is the password of an acceptable hash.
 *
 * @param load the fast library, which has no build for some machines; there `argon2` does its work
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
    // Several lanes would run one after the other in the fast library.
    if (OURS.exec(stored)?.[1] !== '1') return verifyAny(stored, password);
    fast ??= loadOnce();
    return (await fast)(stored, password);
  };
}

const verifyAny: Verify = (stored, password) => argon2.verify(stored, password);

/** Not before somebody signs in: it would be most of what a start has to spare. */
async function loadFast(): Promise<Verify> {
  const { default: fast } = await import('@node-rs/argon2');
  // Strict about bits to spare and zeros in front, which the other one reads.
  return (stored, password) => fast.verify(stored, password).catch(() => verifyAny(stored, password));
}

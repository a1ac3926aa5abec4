import { sha256 } from '../kernel/secrets.js';
import { UniqueViolation } from '../storage/collection.js';
import type { Users } from './store.js';

/** Users of whom none is stored: each is answered as an import of all before it would have been. */
export function rehearse(users: Pick<Users, 'findOne'>): Pick<Users, 'insert'> {
  const stored = new Digests();
  return {
    async insert({ email }) {
      const isTaken = (await users.findOne({ email })) !== null;
      if (isTaken || !stored.add(email)) throw new UniqueViolation('users', 'email');
    },
  };
}

const LEAST = 1024;

/**
 * Texts, of each of which 64 bits are kept: a file may have millions of lines. A million take 16 MiB, a seventh of a
 * `Set`, and the chance that two of them are held for one is below one in thirty million.
 */
class Digests {
  #slots = new BigUint64Array(LEAST);
  #size = 0;

  /** Answers whether it is new. */
  add(text: string): boolean {
    // 0 is a slot that is free.
    const digest = Buffer.from(sha256(text), 'base64url').readBigUInt64LE() || 1n;
    if (!put(this.#slots, digest)) return false;
    this.#size++;
    if (2 * this.#size > this.#slots.length) this.#grow();
    return true;
  }

  #grow(): void {
    const larger = new BigUint64Array(2 * this.#slots.length);
    for (const digest of this.#slots) if (digest !== 0n) put(larger, digest);
    this.#slots = larger;
  }
}

/** Into the first free slot from where it belongs; there are as many as a power of two, half of them free. */
function put(slots: BigUint64Array, digest: bigint): boolean {
  const last = slots.length - 1;
  let at = Number(digest & BigInt(last));
  while (slots[at] !== 0n) {
    if (slots[at] === digest) return false;
    at = (at + 1) & last;
  }
  slots[at] = digest;
  return true;
}

import { sha256 } from '../../../core/kernel/secrets.js';
import { UniqueViolation } from '../../../core/storage/collection.js';
import type { Users } from '../store.js';
import type { StoreUser } from '../users/users.js';

/** Stores nothing, and detects duplicates as a real import would. */
export function createDryRun(users: Pick<Users, 'findOne'>): StoreUser {
  const imported = new DigestSet();
  return async ({ id, email }) => {
    const isTaken = (await users.findOne({ email })) !== null;
    if (isTaken || !imported.add(email)) throw new UniqueViolation('users', 'email');
    if (!imported.add(`id ${id}`)) throw new UniqueViolation('users', 'id');
  };
}

const INITIAL_SLOTS = 1024;

/**
 * A set of texts that stores 64 bits of each, because a file may have millions of lines. A million take 16 MiB, a seventh
 * of a `Set`, with a probability of a collision below one in thirty million.
 */
class DigestSet {
  #slots = new BigUint64Array(INITIAL_SLOTS);
  #size = 0;

  /** Returns whether the text was new. */
  add(text: string): boolean {
    // 0 marks an empty slot.
    const digest = Buffer.from(sha256(text), 'base64url').readBigUInt64LE() || 1n;
    if (!insertDigest(this.#slots, digest)) return false;
    this.#size++;
    if (2 * this.#size > this.#slots.length) this.#grow();
    return true;
  }

  #grow(): void {
    const larger = new BigUint64Array(2 * this.#slots.length);
    for (const digest of this.#slots) if (digest !== 0n) insertDigest(larger, digest);
    this.#slots = larger;
  }
}

/** Linear probing: the number of slots is a power of two, and at least half of them are empty. */
function insertDigest(slots: BigUint64Array, digest: bigint): boolean {
  const last = slots.length - 1;
  let at = Number(digest & BigInt(last));
  while (slots[at] !== 0n) {
    if (slots[at] === digest) return false;
    at = (at + 1) & last;
  }
  slots[at] = digest;
  return true;
}

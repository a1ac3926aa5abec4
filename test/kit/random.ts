import { createHash } from 'node:crypto';
import type { Random } from '../../src/core/kernel/secrets.js';

/** Bytes derived only from `seed`, and the number of calls. */
export interface CountedRandom extends Random {
  readonly calls: number;
}

export function countedRandom(seed = 'seed'): CountedRandom {
  let calls = 0;
  return {
    get calls() {
      return calls;
    },
    bytes(size) {
      return createHash('shake256', { outputLength: size }).update(`${seed}:${calls++}`).digest();
    },
  };
}

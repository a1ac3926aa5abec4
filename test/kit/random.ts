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

/** Whole numbers in an order that depends on `seed` alone. */
export function numbersFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state >>> 8;
  };
}

/** `hash`: argon2.verify alone. */
import { availableParallelism } from 'node:os';
import argon2 from 'argon2';
import { STANDARD_COST } from '../../src/core/passwords/argon2.js';
import { work } from './work.js';

const PASSWORD = 'a sentence is fine';
const hash = await argon2.hash(PASSWORD, { type: argon2.argon2id, ...STANDARD_COST });

// The number of concurrent hashes in the programs.
work(
  { hash: () => argon2.verify(hash, PASSWORD) },
  { hash: Math.max(1, Math.min(availableParallelism(), 2)) },
);

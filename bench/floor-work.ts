/** `hash`: argon2.verify alone. `sign`: Ed25519 signatures of node:crypto. */
import { generateKeyPairSync, sign } from 'node:crypto';
import { availableParallelism } from 'node:os';
import argon2 from 'argon2';
import { STANDARD_COST } from '../src/core/passwords/argon2.js';
import { work } from './work.js';

const PASSWORD = 'a sentence is fine';
const hash = await argon2.hash(PASSWORD, { type: argon2.argon2id, ...STANDARD_COST });
const { privateKey } = generateKeyPairSync('ed25519');
/** The length of header and claims of an id_token. */
const token = Buffer.alloc(420, 'x');

work(
  {
    hash: () => argon2.verify(hash, PASSWORD),
    sign: () => sign(null, token, privateKey),
  },
  // The number of concurrent hashes in the programs.
  { hash: Math.max(1, Math.min(availableParallelism(), 2)) },
);

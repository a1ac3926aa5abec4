/** The size of one document on disk, including its share of every index. */
import { randomBytes } from 'node:crypto';
import { statSync } from 'node:fs';
import { join } from 'node:path';
import argon2 from 'argon2';
import { systemClock } from '../../src/core/kernel/clock.js';
import { newId, sha256, systemRandom } from '../../src/core/kernel/secrets.js';
import { type Audit, createAudit, createListedAudit } from '../../src/core/ops/audit.js';
import { STANDARD_COST } from '../../src/core/passwords/argon2.js';
import type { Collection, Store } from '../../src/core/storage/collection.js';
import { openStore } from '../../src/core/storage/open.js';
import { type GrantDocument, grantCollection } from '../../src/idp/oidc/store.js';
import {
  type SessionDocument,
  sessionCollection,
  type UserDocument,
  userCollection,
} from '../../src/saas/auth/store.js';
import type { Result } from './report.js';
import type { Bench } from './rounds.js';

const COUNT = 20_000;
const BATCH = 500;
const TOOLS = {
  clock: systemClock,
  random: systemRandom,
  log: { error: (record: unknown) => console.error(record) },
};

export async function size(bench: Bench): Promise<Result[]> {
  const passwordHash = await argon2.hash('a sentence is fine', { type: argon2.argon2id, ...STANDARD_COST });
  const kinds: Record<string, (store: Store) => () => Promise<void>> = {
    'a user': (store) => inserting(userCollection(store), () => user(passwordHash)),
    'a session': (store) => inserting(sessionCollection(store), session),
    'a grant': (store) => inserting(grantCollection(store), grant),
    'an audit record of saas-backend': (store) => recording(createListedAudit(store, TOOLS)),
    'an audit record of idp': (store) => recording(createAudit(store, TOOLS)),
  };
  const results: Result[] = [];
  for (const [kind, begin] of Object.entries(kinds)) {
    bench.progress(`${bench.row}: ${kind}`);
    const file = join(bench.lab.folder(), 'store.db');
    const store = await openStore(`sqlite:${file}`);
    const add = begin(store);
    for (let count = 0; count < COUNT; count += BATCH) {
      await Promise.all(Array.from({ length: BATCH }, add));
    }
    await store.close();
    results.push({ what: `${kind} takes`, value: statSync(file).size / COUNT, unit: 'bytes' });
  }
  return results;
}

function inserting<T extends { id: string }>(collection: Collection<T>, make: () => T): () => Promise<void> {
  return () => collection.insert(make());
}

function recording(audit: Audit): () => Promise<void> {
  return () => audit.record({ event: 'login.succeeded', subject: id('usr_'), ip: '203.0.113.77' });
}

export const id = (prefix: string) => newId(prefix, systemClock, systemRandom);
const hash = () => sha256(randomBytes(16).toString('hex'));

export function user(passwordHash: string): UserDocument {
  return {
    id: id('usr_'),
    email: `${randomBytes(6).toString('hex')}@example.com`,
    name: 'Ada Lovelace',
    passwordHash,
    passwordVersion: 1,
    emailVerified: false,
    sessionEpoch: 0,
    subscriptionStatus: 'none',
    subscriptionPlan: 'free',
    createdAt: Date.now(),
  };
}

/** A session that was refreshed. */
export function session(): SessionDocument {
  const now = Date.now();
  return {
    id: id('ses_'),
    userId: id('usr_'),
    epoch: 0,
    currentId: hash(),
    previousId: hash(),
    rotatedAt: now,
    createdAt: now,
    expiresAt: now,
  };
}

/** A grant whose code was redeemed. */
function grant(): GrantDocument {
  const now = Date.now();
  return {
    id: id('gr_'),
    codeHash: hash(),
    clientId: id('cid_'),
    sub: id('u_'),
    redirectUri: 'https://app.example/callback',
    scope: 'openid profile email',
    challenge: hash(),
    authTime: now,
    createdAt: now,
    codeExpiresAt: now,
    consumedAt: now,
    accessTokens: [{ hash: hash(), expiresAt: now }],
  };
}

/**
 * A backend whose clock is `ahead` milliseconds ahead: `node worker.js '{ databaseUri, ahead, people }'`.
 * It first creates `people` users: `usr_0`, `usr_1`, …
 */

import { nullIfTaken } from '../../../src/core/storage/collection.js';
import { openStore } from '../../../src/core/storage/open.js';
import { userCollection } from '../../../src/saas/auth/store.js';
import { createServer } from '../../../src/saas/server.js';
import { SECRETS } from '../../kit/app.js';
import { STORM_SECRET, UNSUBSCRIBED } from '../../kit/stripe-fixture.js';

const { databaseUri, ahead, people } = JSON.parse(process.argv[2] ?? '{}');
const store = await openStore(databaseUri);
const users = userCollection(store);
await Promise.all(
  Array.from({ length: people }, (_, index) =>
    users
      .insert({
        id: `usr_${index}`,
        email: `person${index}@example.test`,
        ...UNSUBSCRIBED,
        createdAt: index,
      })
      .catch(nullIfTaken),
  ),
);
await store.close();
const server = createServer({
  ...SECRETS,
  paymentWebhookSecret: STORM_SECRET,
  env: false,
  databaseUri,
  publicUrl: 'http://app.example.test',
  host: '127.0.0.1',
  port: 0,
  logLevel: 'silent',
  clock: { now: () => Date.now() + ahead },
});
console.log(`listens on ${(await server.start()).url}`);
process.once('SIGTERM', async () => {
  await server.stop();
  process.exit();
});

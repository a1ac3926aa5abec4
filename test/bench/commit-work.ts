/** Writes of one caller at a time, as a password reset makes them: `commit-work.js <uri>`. */
import { openStore } from '../../src/core/storage/open.js';
import { userCollection } from '../../src/saas/auth/store.js';
import { type DeliveryDocument, deliveryCollection } from '../../src/saas/webhooks/store.js';
import { type MailDocument, mailCollection } from '../../src/shared/email/store.js';
import { id, user } from './size-row.js';
import { work } from './work.js';

const [uri = ''] = process.argv.slice(2);
const store = await openStore(uri);
const [users, mails, deliveries] = [userCollection(store), mailCollection(store), deliveryCollection(store)];
const account = user('$argon2id$');
await users.insert(account);

const where = { id: account.id, email: account.email, suspendedAt: null };
const change = {
  set: { passwordHash: '$argon2id$'.padEnd(97, 'x'), emailVerified: true },
  inc: { passwordVersion: 1, sessionEpoch: 1 },
};

const mail = (): MailDocument => ({
  id: id('mail_'),
  key: id('key_'),
  userId: account.id,
  to: account.email,
  template: 'password-changed',
  content: 'x'.repeat(400),
  security: true,
  expiresAt: Date.now(),
  status: 'queued',
  dueAt: Date.now(),
  attempts: 0,
  createdAt: Date.now(),
});

const delivery = (): DeliveryDocument => ({
  id: id('whd_'),
  webhookId: id('msg_'),
  event: 'session.revoked',
  endpointId: 'whe_1',
  userId: account.id,
  body: 'x'.repeat(300),
  status: 'pending',
  dueAt: Date.now(),
  attempts: 0,
  history: [],
  createdAt: Date.now(),
});

function assertMade(made: boolean): void {
  if (!made) throw new Error('the account was not changed');
}

work({
  write: async () => assertMade(await users.changeOne(where, change)),
  commit: async () => {
    const writes = [users.changing(where, change), mails.inserting(mail()), deliveries.inserting(delivery())];
    assertMade((await store.commit(writes)).committed);
  },
});

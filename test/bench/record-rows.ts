/** The records that `npm run bench:scale -- --records` adds, and the pages of the admin area that show them. */

import { DAY, HOUR } from '../../src/core/kernel/clock.js';
import { listedAuditCollection } from '../../src/core/ops/audit.js';
import type { Collection, Store } from '../../src/core/storage/collection.js';
import {
  type PaymentEventDocument,
  paymentCollection,
  paymentEventCollection,
  subscriptionCollection,
} from '../../src/saas/billing/store.js';
import { mailCollection } from '../../src/shared/email/store.js';
import { id } from './size-row.js';

export interface RecordKind {
  name: string;
  collection(store: Store): Collection<{ id: string }>;
  /** @param at a moment of the last 90 days */
  make(index: number, userId: string, at: number): { id: string };
}

const LIFE = 90 * DAY;
const PERIOD = 30 * DAY;

/** One of a thousand stands out, so that a filter finds few among many. */
const isRare = (index: number) => index % 1000 === 0;

export const randomTime = (): number => Date.now() - Math.floor(Math.random() * LIFE);

export const RECORD_KINDS: readonly RecordKind[] = [
  {
    name: 'subscriptions',
    collection: subscriptionCollection as RecordKind['collection'],
    make: (index, ownerId, at) => ({
      id: id('sub_'),
      ownerId,
      status: isRare(index) ? 'past_due' : 'active',
      plan: 'pro',
      customerId: id('cus_'),
      priceId: 'price_pro',
      quantity: 1,
      currentPeriodStart: at,
      currentPeriodEnd: at + LIFE + PERIOD,
      cancelAtPeriodEnd: false,
      startedAt: at,
      items: [
        {
          priceId: 'price_pro',
          quantity: 1,
          price: { unitAmount: 1900, currency: 'eur', interval: 'month', intervalCount: 1 },
        },
      ],
      at,
      statusAt: at,
      heardAt: at,
      recheckAt: at + LIFE + PERIOD,
      rev: 1,
      createdAt: at,
      updatedAt: at,
    }),
  },
  {
    name: 'payments',
    collection: paymentCollection as RecordKind['collection'],
    make: (index, ownerId, at) => ({
      id: id('in_'),
      ownerId,
      subscriptionId: id('sub_'),
      status: isRare(index) ? 'failed' : 'paid',
      amount: 1900,
      currency: 'eur',
      attempts: 1,
      at,
      paymentIntentId: id('pi_'),
      chargeId: id('ch_'),
      rev: 1,
    }),
  },
  {
    name: 'payment events',
    collection: paymentEventCollection as RecordKind['collection'],
    make: (index, _userId, at): PaymentEventDocument => ({
      id: id('evt_'),
      type: 'customer.subscription.updated',
      objectId: id('sub_'),
      about: id('cus_'),
      receivedAt: at,
      attempts: 1,
      outcome: isRare(index) ? 'unmatched' : 'processed',
    }),
  },
  {
    name: 'e-mails',
    collection: mailCollection as RecordKind['collection'],
    make: (index, userId, at) => ({
      id: id('mail_'),
      key: id('key_'),
      userId,
      to: 'ada@example.com',
      template: 'payment-failed',
      security: false,
      expiresAt: at + DAY,
      status: isRare(index) ? 'failed' : 'sent',
      attempts: 1,
      createdAt: at,
      endedAt: at + HOUR,
    }),
  },
  {
    name: 'audit records',
    collection: listedAuditCollection as RecordKind['collection'],
    make: (index, userId, at) => ({
      id: id('aud_'),
      at,
      event: isRare(index) ? 'password.changed' : 'login.succeeded',
      subject: userId,
      ip: '203.0.113.77',
    }),
  },
];

/** Paths below the admin area by what they show. */
export const recordPages = (userId: string): Record<string, string> => ({
  'subscriptions, the newest': 'subscriptions',
  'subscriptions past due': 'subscriptions?status=past_due',
  'subscriptions of a user': `subscriptions?q=${userId}`,
  'payments, the newest': 'payments',
  'failed payments': 'payments?status=failed',
  'payment events, the newest': 'webhooks',
  'unmatched payment events': 'webhooks?outcome=unmatched',
  'e-mails, the newest': 'mails',
  'failed e-mails': 'mails?status=failed',
  'e-mails of a user': `mails?q=${userId}`,
  'audit, the newest': 'audit',
  'audit, changed passwords': 'audit?event=password.changed',
  'audit of a user': `audit?q=${userId}`,
});

/**
 * A process that reports usage of `usr_1` and sends it, until all of it was sent:
 * `node usage-worker.js '{ databaseUri, apiUrl, ahead, keys }'`. Its clock is `ahead` milliseconds ahead. It prints
 * `reported <key>` for each stored report.
 */
import { setImmediate } from 'node:timers/promises';
import { openStore } from '../../../src/core/storage/open.js';
import { usageCollection } from '../../../src/saas/billing/usage/reports.js';
import { billingOn } from '../../kit/billing.js';
import { KEY } from './kit.js';

const { databaseUri, apiUrl, ahead, keys } = JSON.parse(process.argv[2] ?? '{}');
const store = await openStore(databaseUri);
const billing = billingOn(
  store,
  { now: () => Date.now() + ahead },
  {
    config: {
      paymentSecretKey: KEY,
      paymentApiUrl: apiUrl,
      billingReturnUrlRelative: '/settings/billing',
      pastDue: 'entitled',
    },
  },
);
let areReported = false;
const report = async () => {
  for (const key of keys) {
    await billing.reportUsage('usr_1', 'requests', 1, key);
    console.log(`reported ${key}`);
  }
  areReported = true;
};
const send = async () => {
  while (!areReported || (await usageCollection(store).count({ status: 'queued' })) > 0) {
    await billing.sendUsage?.run({ term: 1, signal: new AbortController().signal });
    // Reads of SQLite do not leave the event loop a turn.
    await setImmediate();
  }
};
await Promise.all([report(), send()]);
await store.close();

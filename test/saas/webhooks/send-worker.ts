/**
 * A process that sends what is due, until nothing is pending: `node send-worker.js <uri>`. It prints `ready`, begins at
 * SIGUSR2 and ends with `done`.
 */
import { once } from 'node:events';
import { setImmediate } from 'node:timers/promises';
import { openStore } from '../../../src/core/storage/open.js';
import { fakeClock } from '../../kit/clock.js';
import { webhooksOn } from './kit.js';

const store = await openStore(process.argv[2] as string);
const { send, deliveries } = await webhooksOn(store, {
  ...{ clock: fakeClock(), reach: 'loopback', seed: String(process.pid) },
  wasMade: async () => true,
});
// Keeps the process alive, which a listener of signals does not.
const timer = setInterval(() => undefined, 1000);
const begun = once(process, 'SIGUSR2');
console.log('ready');
await begun;
while ((await deliveries.count({ status: 'pending' })) > 0) {
  await send();
  // Reads of SQLite do not leave the event loop a turn.
  await setImmediate();
}
clearInterval(timer);
await store.close();
console.log('done');

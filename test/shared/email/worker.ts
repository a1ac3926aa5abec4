/**
 * Another process on the same outbox: `node worker.js '{ databaseUri, url, ahead }'`. Its clock is `ahead` milliseconds
 * ahead of the machine's. It sends what is due at SIGUSR2, without asking for the lease of the job.
 */

import { createMessages } from '../../../src/core/http/messages.js';
import { systemRandom } from '../../../src/core/kernel/secrets.js';
import { openStore } from '../../../src/core/storage/open.js';
import { createMailContent } from '../../../src/shared/email/content.js';
import { createEmailService } from '../../../src/shared/email/service.js';
import { mailCollection } from '../../../src/shared/email/store.js';
import { loadTemplates } from '../../../src/shared/email/templates.js';
import { transportTo } from './kit.js';

const { databaseUri, url, ahead } = JSON.parse(process.argv[2] ?? '{}');
const store = await openStore(databaseUri);
const say = (entry: object, words: string) => console.log(words, JSON.stringify(entry));
const email = createEmailService({
  mails: mailCollection(store),
  content: createMailContent({
    secrets: ['of-mails'],
    previousVariable: 'SECRET_PREVIOUS',
    random: systemRandom,
  }),
  templates: loadTemplates(),
  messages: createMessages(),
  transport: transportTo(url),
  from: { email: undefined, name: undefined },
  publicUrl: () => 'https://app.example.test',
  settings: async () => ({ siteName: 'Northwind', emailNotifications: true }),
  readUserVersion: async () => Number.MAX_SAFE_INTEGER,
  wake: () => undefined,
  clock: { now: () => Date.now() + ahead },
  random: systemRandom,
  log: { info: say, warn: say, error: say } as never,
});
await store.ready();
process.once('SIGUSR2', async () => {
  await email.jobs.relay.run({ term: 1, signal: new AbortController().signal });
  console.log('done');
  process.exit();
});
// Keeps the process alive until the signal.
setInterval(() => undefined, 1000);
console.log('ready');

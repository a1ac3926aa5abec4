/** Sets up or removes a factor in a process that kills itself (-9) at one of its calls to the store, given by its arguments. */
import { createAccountMails } from '../../src/auth/mails.js';
import { createMailContent } from '../../src/email/content.js';
import { createOutbox } from '../../src/email/outbox.js';
import { mailCollection } from '../../src/email/store.js';
import { createFactorService } from '../../src/factors/service.js';
import { FACTOR_VERSION, factorCollection } from '../../src/factors/store.js';
import { createMessages } from '../../src/http/messages.js';
import { systemClock as clock } from '../../src/kernel/clock.js';
import { systemRandom as random } from '../../src/kernel/secrets.js';
import { createAudit } from '../../src/ops/audit.js';
import { openStore } from '../../src/storage/open.js';
import { codeAt, FACTOR_KEY } from '../kit/factors.js';
import { killedAt } from '../kit/killed-at.js';

const [uri, account, change, secret, step, moment] = process.argv.slice(2) as [
  string,
  string,
  'added' | 'removed',
  string,
  string,
  string,
];
const store = await openStore(uri);
const wrapped = killedAt(store, Number(step), moment);
const url = () => 'http://localhost';
const outbox = createOutbox({
  ...{ mails: mailCollection(wrapped), messages: createMessages(), publicUrl: url },
  ...{ wake: () => undefined, clock, random },
  content: createMailContent({ secrets: ['of-mails'], previousVariable: 'SECRET_PREVIOUS', random }),
});
const mails = createAccountMails({ outbox, pages: { reset: url, verify: url, unlock: url }, clock });
const service = createFactorService({
  factors: factorCollection(wrapped),
  keys: [FACTOR_KEY],
  issuer: () => 'Example',
  throttle: { attempt: (_guess, evaluate) => evaluate(), trust: async () => undefined },
  audit: createAudit(wrapped, { clock, random, log: { error: () => undefined } }),
  announce: (kind, id, version, from) =>
    mails.secondFactorChanged(
      { id, email: 'ada@example.test', emailVerified: true },
      { kind, versionField: FACTOR_VERSION, version },
      from,
    ),
  clock,
  random,
});
await store.ready();
const from = { ip: '192.0.2.1', isDisconnected: () => false };
if (change === 'removed') await service.remove(account, from);
else await service.confirm(account, codeAt(secret, clock.now()), 'form', from);
await store.close();

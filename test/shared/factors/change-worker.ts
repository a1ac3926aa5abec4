/** Sets up or removes a factor in a process that kills itself (-9) at one of its calls to the store, given by its arguments. */

import { createMessages } from '../../../src/core/http/messages.js';
import { systemClock as clock } from '../../../src/core/kernel/clock.js';
import { systemRandom as random } from '../../../src/core/kernel/secrets.js';
import { createAudit } from '../../../src/core/ops/audit.js';
import { openStore } from '../../../src/core/storage/open.js';
import { createAccountMails } from '../../../src/saas/auth/mails.js';
import { createMailContent } from '../../../src/shared/email/content.js';
import { createOutbox } from '../../../src/shared/email/outbox.js';
import { mailCollection } from '../../../src/shared/email/store.js';
import { createFactorService } from '../../../src/shared/factors/service.js';
import { FACTOR_VERSION, factorCollection } from '../../../src/shared/factors/store.js';
import { codeAt, FACTOR_KEY } from '../../kit/factors.js';
import { killedAt } from '../../kit/killed-at.js';

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

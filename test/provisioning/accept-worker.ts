/** Accepts a link in a process that kills itself (-9) at one of its calls to the store, given by its arguments. */
import { createEmailService } from '../../src/email/service.js';
import { mailCollection } from '../../src/email/store.js';
import { loadTemplates } from '../../src/email/templates.js';
import { createMessages } from '../../src/http/messages.js';
import { systemClock } from '../../src/kernel/clock.js';
import { systemRandom } from '../../src/kernel/secrets.js';
import { createAudit } from '../../src/ops/audit.js';
import { createUnknownWrites } from '../../src/ops/unknown-writes.js';
import { createPasswordPolicy } from '../../src/passwords/common.js';
import { createPasswords } from '../../src/passwords/hasher.js';
import { createFirstOperator, setupCollection } from '../../src/provisioning/first-operator.js';
import { createLinks } from '../../src/provisioning/links.js';
import { createPersonMails } from '../../src/provisioning/mails.js';
import { principalCollection } from '../../src/provisioning/store.js';
import { openStore } from '../../src/storage/open.js';
import { createThrottle } from '../../src/throttle/throttle.js';
import { CHEAP } from '../kit/app.js';
import { killedAt } from '../kit/killed-at.js';

const [uri, token, password, step, moment, handle] = process.argv.slice(2) as [
  string,
  string,
  string,
  string,
  string,
  string,
];
const store = await openStore(uri);

const wrapped = killedAt(store, Number(step), moment);
const [clock, random] = [systemClock, systemRandom];
const audit = createAudit(wrapped, { clock, random, log: { error: () => undefined } });
const unknownWrites = createUnknownWrites({ clock, log: { error: () => undefined } });
const issuer = () => 'http://localhost';
const principals = principalCollection(wrapped);
const firstOperator = createFirstOperator(setupCollection(wrapped), principals, { clock, random, issuer });
const messages = createMessages();
const outbox = createEmailService({
  mails: mailCollection(wrapped),
  templates: loadTemplates(),
  messages,
  transport: { send: async () => 'sent', close: async () => undefined },
  from: { email: undefined, name: undefined },
  publicUrl: issuer,
  settings: async () => ({ siteName: 'idp', emailNotifications: true }),
  readUserVersion: async () => null,
  wake: () => undefined,
  ...{ clock, random, log: { info: () => undefined, warn: () => undefined, error: () => undefined } },
});
const links = createLinks(principals, {
  mails: createPersonMails({ outbox, messages, clock }),
  endSessions: (_, change) => change(),
  firstOperator,
  audit,
  clock,
  random,
  passwords: createPasswords(random, CHEAP),
  passwordPolicy: createPasswordPolicy(false, () => undefined),
  throttle: createThrottle(wrapped, { clock, audit, secret: 'x', production: true, limits: true }),
  unknownWrites,
  issuer,
});
await store.ready();
await links.accept(
  token,
  { password, confirmation: undefined, handle },
  { ip: '192.0.2.1', isDisconnected: () => false },
);
await store.close();

/** Accepts a link or signs up, in a process that kills itself (-9) at one of its calls to the store, given by its arguments. */

import { createMessages } from '../../../src/core/http/messages.js';
import { systemClock } from '../../../src/core/kernel/clock.js';
import { systemRandom } from '../../../src/core/kernel/secrets.js';
import { createAudit } from '../../../src/core/ops/audit.js';
import { createModuleContext } from '../../../src/core/server/module-context.js';
import { openStore } from '../../../src/core/storage/open.js';
import { createPersonMails } from '../../../src/idp/provisioning/mails.js';
import { createProvisioningModule } from '../../../src/idp/provisioning/module.js';
import { createMailContent } from '../../../src/shared/email/content.js';
import { createEmailService } from '../../../src/shared/email/service.js';
import { mailCollection } from '../../../src/shared/email/store.js';
import { loadTemplates } from '../../../src/shared/email/templates.js';
import { CHEAP } from '../../kit/app.js';
import { NO_EFFECT } from '../../kit/effects.js';
import { killedAt } from '../../kit/killed-at.js';

const [uri, step, moment, work] = process.argv.slice(2) as [string, string, string, string];
/** `accept` is the token of a link; without it, the process signs up. */
const { accept, password, handle, name } = JSON.parse(work) as {
  accept?: string;
  password: string;
  handle?: string;
  name?: string;
};
const store = await openStore(uri);

const wrapped = killedAt(store, Number(step), moment);
const [clock, random, issuer] = [systemClock, systemRandom, () => 'http://localhost'];
const log = { info: () => undefined, warn: () => undefined, error: () => undefined };
const messages = createMessages();
const outbox = createEmailService({
  mails: mailCollection(wrapped),
  content: createMailContent({ secrets: ['of-mails'], previousVariable: 'SECRET_PREVIOUS', random }),
  templates: loadTemplates(),
  messages,
  transport: { send: async () => 'sent', close: async () => undefined },
  from: { email: undefined, name: undefined },
  publicUrl: issuer,
  settings: async () => ({ siteName: 'idp', emailNotifications: true }),
  wake: () => undefined,
  ...{ clock, random, log },
});
const context = createModuleContext(wrapped, {
  ...{ clock, random, log, createAudit, hashing: CHEAP },
  ...{ production: false, limits: true, throttleSecret: 'x' },
});
const { links, principals } = createProvisioningModule(context, {
  ...{
    issuer,
    uriRules: { allowHttp: false, nativeSchemes: [] },
    isSignupOpen: true,
    idTokenAlgorithms: ['EdDSA'],
  },
  endSessions: async () => NO_EFFECT,
  endClient: async () => NO_EFFECT,
  mails: createPersonMails({ outbox, messages, clock }),
});
await store.ready();
const from = { ip: '192.0.2.1', isDisconnected: () => false };
if (accept !== undefined) await links.accept(accept, { password, confirmation: undefined, handle }, from);
else
  await principals.register({ handle: handle ?? '', password, kind: 'human', ...(name && { name }) }, from);
await store.close();

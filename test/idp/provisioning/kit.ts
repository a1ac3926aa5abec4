import type { Test } from 'tap';
import { createMessages } from '../../../src/core/http/messages.js';
import { createAudit } from '../../../src/core/ops/audit.js';
import { createModuleContext } from '../../../src/core/server/module-context.js';
import { createPersonMails } from '../../../src/idp/provisioning/mails.js';
import { createProvisioningModule } from '../../../src/idp/provisioning/module.js';
import type { Outbox } from '../../../src/shared/email/outbox.js';
import { type Answer, CHEAP } from '../../kit/app.js';
import { NO_EFFECT } from '../../kit/effects.js';
import { type IdpApp, type IdpAppOptions, ISSUER, idpApp, idpStore } from '../../kit/idp.js';
import { type MailSink, mailSink } from '../../kit/mail.js';
import { COMMAND_SOURCE } from '../../kit/operator.js';
import { countedRandom } from '../../kit/random.js';
import { readMails } from '../../saas/auth/kit.js';

/** A provider whose e-mails are delivered. */
export interface MailedIdp extends IdpApp {
  readonly sink: MailSink;
  /** The next e-mail with this subject; skips others. */
  mail: ReturnType<typeof readMails>['mail'];
  /** The path of the link in the next e-mail with this subject. */
  linkIn(subject: RegExp): Promise<string>;
  /** Submits the form for a forgotten password. */
  forget(handle: string, more?: { from?: string; headers?: Record<string, string> }): Promise<Answer>;
}

export async function mailedIdp(
  t: Test,
  { sink, ...options }: IdpAppOptions & { sink?: MailSink } = {},
): Promise<MailedIdp> {
  const server = sink ?? (await mailSink(t));
  const idp = await idpApp(t, { emailSmtpUrl: server.url, ...options });
  const { mail } = readMails(server, idp.clock);
  return {
    ...idp,
    sink: server,
    mail,
    linkIn: async (subject) => linkOf((await mail(subject)).text),
    forget: (handle, more = {}) =>
      idp.request('POST', '/account/forgot-password', { form: { handle }, ...more }),
  };
}

/** The domain in another process on the same store, and the paths of the links that it mails. */
export async function otherProcess(t: Test, idp: IdpApp) {
  const paths: string[] = [];
  const mail: Outbox['mail'] = ({ values }) => {
    if (typeof values['link'] === 'string') paths.push(new URL(values['link']).pathname);
    return NO_EFFECT;
  };
  const context = createModuleContext(await idpStore(t, idp), {
    ...{ clock: idp.clock, random: countedRandom('another process'), createAudit, hashing: CHEAP },
    log: { info: () => undefined, warn: () => undefined, error: () => undefined },
    ...{ production: true, limits: true, throttleSecret: 'x' },
  });
  const module = createProvisioningModule(context, {
    ...{ issuer: () => ISSUER, uriRules: { allowHttp: false, nativeSchemes: [] }, isSignupOpen: false },
    endSessions: async () => NO_EFFECT,
    endClient: async () => NO_EFFECT,
    idTokenAlgorithms: ['EdDSA'],
    mails: createPersonMails({
      outbox: { mail, deleteByUser: async () => undefined },
      messages: createMessages(),
      clock: idp.clock,
    }),
  });
  return { ...module, paths };
}

/** The path of a link as `idp principal reset` prints it. */
export async function printReset(t: Test, idp: IdpApp, sub: string): Promise<string> {
  const { directory, links } = await otherProcess(t, idp);
  const person = await directory.get(sub);
  const link = person && (await links.reset(person, COMMAND_SOURCE));
  return new URL(link?.url ?? '').pathname;
}

/** The path of the link in the text of an e-mail. */
export function linkOf(text: string): string {
  const [link] = /https?:\/\/\S+\/(invite|verify)\/\S+/.exec(text) ?? [];
  if (link === undefined) throw new Error(`there is no link in:\n${text}`);
  return new URL(link).pathname;
}

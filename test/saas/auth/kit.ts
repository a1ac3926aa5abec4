import type { Test } from 'tap';
import { type SaasApp, saasApp } from '../../kit/app.js';
import type { FakeClock } from '../../kit/clock.js';
import { type MailSink, mailSink, readMail } from '../../kit/mail.js';
import { sentence } from '../../kit/sentences.js';

/** A backend whose e-mails are delivered. */
export interface MailedApp extends SaasApp {
  readonly sink: MailSink;
  /** The next e-mail of any kind. */
  nextMail(): Promise<ArrivedMail>;
  /** The next e-mail of this kind; skips others. */
  mail(subject: RegExp): Promise<ArrivedMail>;
  /** The token of the next link of a kind. */
  tokenIn(subject: RegExp): Promise<string>;
}

export interface ArrivedMail {
  to: string[];
  subject: string;
  text: string;
  /** The token of the link in it, if there is one. */
  token: string;
}

export const WELCOME = sentence('mail.welcome.subject');
export const RESET = sentence('mail.password-reset.subject');
export const CHANGED = sentence('mail.password-changed.subject');
/** Of a registration or of an address change. */
export const VERIFY = new RegExp(
  ['verify-email', 'confirm-address-change'].map((mail) => sentence(`mail.${mail}.subject`).source).join('|'),
);
export const UNLOCK = sentence('mail.unlock.subject');
export const MOVED = sentence('mail.email-changed.subject');

export async function mailedApp(
  t: Test,
  options: Parameters<typeof saasApp>[1] & { sink?: MailSink } = {},
): Promise<MailedApp> {
  const { sink = await mailSink(t), ...rest } = options;
  const app = await saasApp(t, { emailSmtpUrl: sink.url, ...rest });
  const { nextMail, mail } = readMails(sink, app.clock);
  return {
    ...app,
    sink,
    nextMail,
    mail,
    tokenIn: async (subject) => (await mail(subject)).token,
  };
}

/** Reads the e-mails of a server one by one. */
export function readMails(sink: MailSink, clock: FakeClock): Pick<MailedApp, 'nextMail' | 'mail'> {
  const nextMail = async () => arrived(await sink.next());
  const mail = async (subject: RegExp): Promise<ArrivedMail> => {
    // The relay retries an unsendable e-mail after a second, by a clock that only tests move.
    const passing = setInterval(() => clock.advance(1000), 1000);
    try {
      for (;;) {
        const one = await nextMail();
        if (subject.test(one.subject)) return one;
      }
    } finally {
      clearInterval(passing);
    }
  };
  return { nextMail, mail };
}

export function arrived(mail: Awaited<ReturnType<MailSink['next']>>): ArrivedMail {
  const { headers, text: raw } = readMail(mail);
  const text = raw.replaceAll('\r', '');
  const token = /\?token=(\S+)/.exec(text)?.[1] ?? '';
  return { to: mail.to, subject: headers['subject'] ?? '', text, token };
}

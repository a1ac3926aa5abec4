import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createDevelopmentFolder } from '../../core/config/development-secrets.js';
import type { Resolved } from '../../core/config/options.js';
import { type Clock, SECOND } from '../../core/kernel/clock.js';
import { sha256 } from '../../core/kernel/secrets.js';
import type { JobLog } from '../../core/ops/jobs.js';
import { createHttpTransport } from './http-transport.js';
import type { EmailConfiguration } from './schemas.js';
import {
  createSmtpTransport,
  DeliveryError,
  type DeliveryResult,
  type Message,
  smtpSettings,
  type Transport,
} from './transport.js';

/** Where development without a mail server writes its mails. */
const DEVELOPMENT_MAIL_FOLDER = 'data/mail';

const VERIFICATION_MS = 5 * SECOND;

/** The connection to the mail server that the options name, if they name one. */
function settingsOf(values: EmailConfiguration, publicUrl: string) {
  return smtpSettings({
    smtpUrl: values.emailSmtpUrl,
    service: values.emailService,
    user: values.emailUser,
    apiKey: values.emailApiKey,
    fromEmail: values.fromEmail ?? `no-reply@${new URL(publicUrl).hostname}`,
  });
}

/** Describes why the mail server does not accept a connection; null if it does, or if there is none. */
export async function mailServerProblem(
  values: EmailConfiguration,
  publicUrl: string,
): Promise<string | null> {
  const settings = values.emailApiUrl === undefined && settingsOf(values, publicUrl);
  if (!settings) return null;
  const transport = createSmtpTransport(settings, VERIFICATION_MS);
  try {
    await transport.verify?.();
    return null;
  } catch (error) {
    if (!(error instanceof DeliveryError)) throw error;
    return error.message;
  } finally {
    await transport.close();
  }
}

/** Sends a mail at once, without the outbox. Returns what happened. @throws DeliveryError */
export async function sendTestMail(
  resolved: Resolved<EmailConfiguration>,
  { to, publicUrl, clock }: { to: string; publicUrl: string; clock: Clock },
): Promise<DeliveryResult> {
  const { hostname } = new URL(publicUrl);
  const { fromEmail = `no-reply@${hostname}`, fromName = hostname, emailReplyTo: replyTo } = resolved.values;
  const quiet = () => undefined;
  const log = { info: quiet, warn: quiet, error: quiet };
  const transport = openTransport(resolved, { publicUrl, clock, log });
  const text = `A test of the mail settings of ${publicUrl}. If you can read it, e-mails arrive; see whether it is in the folder for spam.`;
  const message: Message = {
    template: 'test',
    from: { name: fromName, address: fromEmail },
    ...(replyTo !== undefined && { replyTo }),
    ...{ to, subject: `Test mail of ${hostname}`, text, html: `<p>${text}</p>` },
    messageId: `<test-${clock.now()}@${hostname}>`,
  };
  try {
    return await transport.send(message, AbortSignal.timeout(4 * VERIFICATION_MS));
  } finally {
    await transport.close();
  }
}

/** Selects the transport: an HTTP API, a mail server, else a folder in development or the log in production. */
export function openTransport(
  { values, production }: Resolved<EmailConfiguration>,
  { publicUrl, clock, log }: { publicUrl: string; clock: Clock; log: JobLog },
): Transport {
  const { emailApiUrl: url, emailApiKey: apiKey } = values;
  if (url !== undefined && apiKey !== undefined) return createHttpTransport({ url, apiKey });
  const settings = settingsOf(values, publicUrl);
  if (settings) return createSmtpTransport(settings);
  if (!production) return createFolderTransport(DEVELOPMENT_MAIL_FOLDER, clock, log);
  log.warn('Neither EMAIL_API_KEY nor EMAIL_SMTP_URL is set: e-mails are only logged, without their links.');
  return {
    async send(message) {
      log.warn({ mail: redactMail(message) }, 'an e-mail was not sent: no transport is configured');
      return 'undeliverable';
    },
    async close() {},
  };
}

/** Writes a text file and an HTML file for each mail, readable by their owner only because they contain valid links. */
export function createFolderTransport(folder: string, clock: Clock, log: JobLog): Transport {
  return {
    async send(message) {
      const { template, from, to, subject, text, html, messageId } = message;
      const time = new Date(clock.now()).toISOString().replaceAll(':', '-');
      const path = join(folder, `${time}-${template}-${sha256(messageId).slice(0, 6)}`);
      const head = `From: ${from.name} <${from.address}>\nTo: ${to}\nSubject: ${subject}\n\n`;
      try {
        createDevelopmentFolder(folder);
        await writeFile(`${path}.txt`, head + text, { mode: 0o600, flag: 'wx' });
        await writeFile(`${path}.html`, html, { mode: 0o600, flag: 'wx' });
      } catch (error) {
        throw new DeliveryError(`${folder}: ${(error as NodeJS.ErrnoException).code}`, false);
      }
      log.info({ mail: redactMail(message) }, `an e-mail was not sent but written to ${path}.html`);
      return 'written';
    },
    async close() {},
  };
}

/** Removes the tokens of links, because log readers must not be able to use them. */
function redactMail({ template, to, subject, text }: Message): Record<string, string> {
  return { template, to, subject, text: text.replace(/\?\S+/g, '?[redacted]') };
}

import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createDevelopmentFolder } from '../config/development-secrets.js';
import type { Resolved } from '../config/options.js';
import type { Clock } from '../kernel/clock.js';
import { sha256 } from '../kernel/secrets.js';
import type { JobLog } from '../ops/jobs.js';
import type { EmailConfiguration } from './schemas.js';
import {
  createSmtpTransport,
  DeliveryError,
  type Message,
  smtpSettings,
  type Transport,
} from './transport.js';

/** Which way mails take: to a mail server, and without one into a folder of the developer's, or nowhere. */

/** Where developers find the mails that did not leave. */
const FOLDER = 'data/mail';

export function openTransport(
  { values, production }: Resolved<EmailConfiguration>,
  { publicUrl, clock, log }: { publicUrl: string; clock: Clock; log: JobLog },
): Transport {
  const settings = smtpSettings({
    smtpUrl: values.emailSmtpUrl,
    service: values.emailService,
    user: values.emailUser,
    apiKey: values.emailApiKey,
    fromEmail: values.fromEmail ?? `no-reply@${new URL(publicUrl).hostname}`,
  });
  if (settings) return createSmtpTransport(settings);
  if (!production) return createFolderTransport(FOLDER, clock, log);
  log.warn('Neither EMAIL_API_KEY nor EMAIL_SMTP_URL is set: e-mails are only logged, without their links.');
  return {
    async send(message) {
      log.warn({ mail: describe(message) }, 'an e-mail was not sent: no transport is configured');
      return 'undeliverable';
    },
    async close() {},
  };
}

/** Two files for each mail, readable for their owner only: one to look at, one to read. They hold working links. */
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
      log.info({ mail: describe(message) }, `an e-mail was not sent but written to ${path}.html`);
      return 'written';
    },
    async close() {},
  };
}

/** A mail as the log may know it: whoever reads it must not be able to follow a link. */
function describe({ template, to, subject, text }: Message): Record<string, string> {
  return { template, to, subject, text: text.replace(/\?\S+/g, '?[redacted]') };
}

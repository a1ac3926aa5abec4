import { join } from 'node:path';
import type { Test } from 'tap';
import { createMessages } from '../../../src/core/http/messages.js';
import type { Random } from '../../../src/core/kernel/secrets.js';
import { createCommit } from '../../../src/core/ops/commit.js';
import { createJobs } from '../../../src/core/ops/jobs.js';
import { openStore } from '../../../src/core/storage/open.js';
import { createMailContent } from '../../../src/shared/email/content.js';
import type { Mail } from '../../../src/shared/email/outbox.js';
import { createEmailService, type EmailServiceOptions } from '../../../src/shared/email/service.js';
import { type Mails, mailCollection } from '../../../src/shared/email/store.js';
import { loadTemplates } from '../../../src/shared/email/templates.js';
import { createSmtpTransport, smtpSettings } from '../../../src/shared/email/transport.js';
import { fakeClock } from '../../kit/clock.js';
import { countedRandom } from '../../kit/random.js';
import { temporaryFolder } from '../../kit/tmp.js';

/** An outbox on its own store, whose relay runs on request. */

export const MINUTE = 60_000;
export const HOUR = 60 * MINUTE;

export const LINK = 'https://app.example.test/api/auth/reset-password?token=Zq7vLd0mXw4RkT9cYb2NfHs6Eg';

/** A transport to a mail server at `url`. */
export function transportTo(url: string, timeout?: number) {
  const settings = smtpSettings({
    smtpUrl: url,
    service: 'Resend',
    user: undefined,
    apiKey: undefined,
    fromEmail: 'no-reply@app.example.test',
  });
  if (!settings) throw new Error('no mail server');
  return createSmtpTransport(settings, timeout);
}

const contentOf = (random: Random, secrets = ['of-mails']) =>
  createMailContent({ secrets, previousVariable: 'SECRET_PREVIOUS', random });

type Needed = 'clock' | 'random' | 'log' | 'transport';

/** E-mails of a process. */
export const emailOn = (
  mails: Mails,
  { random, ...more }: Pick<EmailServiceOptions, Needed> & Partial<EmailServiceOptions>,
) =>
  createEmailService({
    ...{ mails, random, messages: createMessages(), templates: loadTemplates(), content: contentOf(random) },
    ...{ from: { email: undefined, name: undefined }, replyTo: undefined, wake: () => undefined },
    publicUrl: () => 'https://app.example.test',
    settings: async () => ({ siteName: 'Northwind', emailNotifications: true }),
    ...more,
  });

export interface OutboxOptions
  extends Partial<Pick<EmailServiceOptions, 'templates' | 'transport' | 'from' | 'replyTo'>> {
  /** The URL of the mail server, if no transport is given. */
  url?: string;
  emailNotifications?: boolean;
  /** Encrypt the mails, the current one first. */
  secrets?: string[];
  /** An existing file. */
  file?: string;
  siteName?: string;
}

export async function outbox(t: Test, { url = 'smtp://127.0.0.1:1', ...options }: OutboxOptions = {}) {
  const file = options.file ?? join(temporaryFolder(t), 'mail.db');
  const store = await openStore(`sqlite:${file}`);
  t.teardown(() => store.close());
  const clock = fakeClock();
  const random = countedRandom();
  const lines: { entry: object; words: string }[] = [];
  const say = (entry: object, words: string) => void lines.push({ entry, words });
  const log = { info: say, warn: say, error: say } as never;
  const mails = mailCollection(store);
  const transport = options.transport ?? transportTo(url);
  t.teardown(() => transport.close());
  const settings = {
    siteName: options.siteName ?? 'Northwind',
    emailNotifications: options.emailNotifications ?? true,
  };
  let wakes = 0;
  const { templates, from, replyTo } = options;
  const email = emailOn(mails, {
    ...{ clock, random, log, transport, replyTo },
    ...(templates && { templates }),
    ...(from && { from }),
    content: contentOf(random, options.secrets),
    settings: async () => settings,
    wake: () => void wakes++,
  });
  const jobs = createJobs(store, { clock, random, log });
  jobs.add('mail', email.jobs.relay);
  jobs.add('purge', email.jobs.purge);
  t.teardown(() => jobs.stop());

  const commit = createCommit(store);
  let puts = 0;
  return {
    databaseUri: `sqlite:${file}`,
    commit,
    clock,
    lines,
    mails,
    settings,
    email,
    jobs,
    /** Sends the e-mails that are due. */
    relay: () => jobs.runNow('mail'),
    wakes: () => wakes,
    /** A password reset e-mail by default. */
    async put(more: Partial<Mail> = {}): Promise<string> {
      const key = more.key ?? `reset-${++puts}`;
      const mail = email.mail({
        key,
        to: 'ada@example.test',
        template: 'password-reset',
        values: { email: 'ada@example.test', link: LINK, validFor: '1 hour' },
        security: true,
        expiresAt: clock.now() + 24 * HOUR,
        ...more,
      });
      await commit([mail]);
      return key;
    },
    /** The stored fields of an e-mail. */
    async stored(key: string) {
      const mail = await mails.findOne({ key });
      if (!mail) throw new Error(`no mail ${key}`);
      return mail;
    },
  };
}

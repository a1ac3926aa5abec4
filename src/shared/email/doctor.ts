import type { Resolved } from '../../core/config/options.js';
import { MINUTE, systemClock } from '../../core/kernel/clock.js';
import { MAX_COUNTED } from '../../core/ops/outbox-metrics.js';
import type { Finding } from '../../core/server/doctor.js';
import { readCollection } from '../../core/storage/inspect.js';
import type { EmailConfiguration } from './schemas.js';
import type { Mails } from './store.js';
import { DeliveryError } from './transport.js';
import { mailServerProblem, sendTestMail } from './transport-selection.js';

export interface MailExamination {
  /** Of the variables. */
  prefix: '' | 'IDP_';
  publicUrl: string | undefined;
  /** Receives a test mail. */
  sendMailTo?: string | undefined;
}

/** Whether the mail server accepts a connection and, if there is a recipient, a mail. */
export async function examineMailServer(
  resolved: Resolved<EmailConfiguration>,
  { prefix, publicUrl = 'http://localhost', sendMailTo: to }: MailExamination,
): Promise<Finding[]> {
  const { values } = resolved;
  const about = `${prefix}${values.emailSmtpUrl === undefined ? 'EMAIL_API_KEY' : 'EMAIL_SMTP_URL'}`;
  const warning = (message: string, remedy: string): Finding[] => [
    { level: 'warning', about, message, remedy },
  ];
  const problem = await mailServerProblem(values, publicUrl);
  if (problem !== null)
    return warning(
      `names a mail server that does not accept e-mails: ${problem}`,
      'Check host, port, user and password, and whether this network may connect to the port.',
    );
  if (to === undefined) return [];
  try {
    const result = await sendTestMail(resolved, { to, publicUrl, clock: systemClock });
    if (result === 'sent')
      return [
        { level: 'ok', about, message: `names a mail server that has accepted the test mail to ${to}` },
      ];
    return warning(
      `is not set, so that the test mail was ${result === 'written' ? 'written to data/mail' : 'not sent'}`,
      `Set it, or ${prefix}EMAIL_SMTP_URL.`,
    );
  } catch (error) {
    if (!(error instanceof DeliveryError)) throw error;
    return warning(
      `names a mail server that refuses the test mail to ${to}: ${error.message}`,
      `Check whether it sends for the address in ${prefix}FROM_EMAIL, and the recipient.`,
    );
  }
}

const OVERDUE_MS = 15 * MINUTE;

/** Whether e-mails wait that a server should have sent; the store is known to open. */
export async function examineMailBacklog(databaseUri: string): Promise<Finding[]> {
  const where = { dueAt: { lt: systemClock.now() - OVERDUE_MS } };
  const count = await readCollection(
    databaseUri,
    'mails',
    (mails: Pick<Mails, 'count'>) => mails.count(where, MAX_COUNTED),
    { numbers: ['dueAt'] },
  );
  if (!count) return [];
  const message = `due for more than 15 minutes and not sent: ${count}`;
  const remedy = 'Start a server. If one is running, its log tells why the job "mail" fails.';
  return [{ level: 'warning', about: 'e-mails', message, remedy }];
}

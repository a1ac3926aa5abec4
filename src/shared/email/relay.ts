import { type Clock, HOUR, SECOND } from '../../core/kernel/clock.js';
import type { Random } from '../../core/kernel/secrets.js';
import type { JobLog, Lease } from '../../core/ops/jobs.js';
import { backoffMs, lease, MAX_ATTEMPTS, sendDue } from '../../core/ops/outbox.js';
import type { MailContent } from './content.js';
import type { MailDocument, MailStatus, Mails } from './store.js';
import { hasSecretLink } from './templates.js';
import { DeliveryError, type DeliveryResult, type Message, type Transport } from './transport.js';

/**
 * Sends the mails that are due. A mail is sent twice only if the process ends between its acceptance by the mail server and the storing of
 * the result.
 */

/** A mail with its decrypted values. */
export type UnfinishedMail = MailDocument & Required<Pick<MailDocument, 'values'>>;

export interface RelayOptions {
  mails: Mails;
  content: MailContent;
  transport: Transport;
  composeMessage(mail: UnfinishedMail): Promise<Message>;
  settings: () => Promise<{ emailNotifications: boolean }>;
  clock: Clock;
  random: Random;
  log: JobLog;
}

/** How long a stopping server waits for running attempts. */
const STOP_TIMEOUT_MS = 3 * SECOND;

export function createRelay(options: RelayOptions): (lease: Lease) => Promise<void> {
  const { mails, content, transport, composeMessage, settings, clock, random, log } = options;

  /** Stores the final status; `null` when another process has taken over the mail. */
  const finish = (mail: MailDocument, status: MailStatus, reason?: string) =>
    mails.updateOne(
      { id: mail.id, attempts: mail.attempts },
      {
        set: { status, endedAt: clock.now(), ...(reason && { reason }) },
        unset: [
          'dueAt',
          ...(status === 'failed' && !hasSecretLink(mail.template) ? [] : (['content', 'values'] as const)),
          ...(reason ? [] : (['reason'] as const)),
        ],
      },
    );

  const postpone = (mail: MailDocument, milliseconds: number, reason?: string) =>
    mails.updateOne(
      { id: mail.id, attempts: mail.attempts },
      { set: { status: 'queued', dueAt: clock.now() + milliseconds, ...(reason && { reason }) } },
    );

  /** Whether to send a mail now. If not, it is finished. */
  const checkDue = async (mail: MailDocument): Promise<boolean> => {
    if (clock.now() >= mail.expiresAt) await finish(mail, 'expired', mail.reason);
    else if (!mail.security && !(await settings()).emailNotifications)
      await finish(mail, 'dropped', 'notification e-mails are disabled');
    else if (mail.attempts >= MAX_ATTEMPTS) await finish(mail, 'failed', mail.reason ?? 'interrupted');
    else return true;
    return false;
  };

  const deliver = async (due: MailDocument, signal: AbortSignal): Promise<void> => {
    if (!(await checkDue(due))) return;
    const leased = await lease(mails, due, clock.now(), { status: 'sending' });
    if (!leased) return;
    const result = await attempt(leased, signal);
    if (!(result instanceof DeliveryError)) {
      reportSuccess();
      await finish(leased, result);
    } else if (signal.aborted) await postpone(leased, 0);
    else if (result.isFinal || leased.attempts >= MAX_ATTEMPTS) {
      await finish(leased, 'failed', result.message);
      const { id, template, attempts } = leased;
      log.error({ mail: { id, template, attempts }, reason: result.message }, 'an e-mail could not be sent');
    } else {
      reportFailure(leased, result.message);
      await postpone(leased, jittered(backoffMs(leased.attempts), random), result.message);
    }
  };

  const valuesOf = (mail: MailDocument): Record<string, string> => {
    let values: Record<string, string> | undefined;
    try {
      values = content.decrypt(mail);
    } catch (error) {
      throw new DeliveryError((error as Error).message, false);
    }
    if (!values) throw new DeliveryError('it has no content', true);
    return values;
  };

  /** When failures were last logged; absent while mails are sent. */
  let reportedAt: number | undefined;

  /** Logs the first failure of a series and one each hour after it. */
  const reportFailure = (mail: MailDocument, reason: string): void => {
    const now = clock.now();
    if (reportedAt !== undefined && now >= reportedAt && now < reportedAt + HOUR) return;
    reportedAt = now;
    const { id, template, attempts } = mail;
    log.warn({ mail: { id, template, attempts }, reason }, 'e-mails cannot be sent and will be retried');
  };

  const reportSuccess = (): void => {
    if (reportedAt !== undefined) log.info('e-mails are sent again');
    reportedAt = undefined;
  };

  /**
   * Passes a mail to the transport. A mail that cannot be composed counts as a failed attempt and does not stop the
   * job.
   */
  const attempt = async (
    mail: MailDocument,
    signal: AbortSignal,
  ): Promise<DeliveryResult | DeliveryError> => {
    try {
      return await transport.send(await composeMessage({ ...mail, values: valuesOf(mail) }), signal);
    } catch (error) {
      if (error instanceof DeliveryError) return error;
      log.error(
        { err: error, mail: { id: mail.id, template: mail.template } },
        'an e-mail could not be composed',
      );
      return new DeliveryError('could not be composed', false);
    }
  };

  return ({ signal }) => {
    const deadline = abortAfter(signal, STOP_TIMEOUT_MS);
    return sendDue(mails, { groupOf: ({ id }) => id, clock, signal }, async (due) => {
      for (const mail of due) await deliver(mail, deadline);
    });
  };
}

/** With a jitter of 25 %. */
function jittered(milliseconds: number, random: Random): number {
  const share = random.bytes(2).readUInt16BE() / 0xffff;
  return Math.round(milliseconds * (0.75 + share / 2));
}

/** Returns a signal that aborts some time after another one. */
function abortAfter(signal: AbortSignal, milliseconds: number): AbortSignal {
  const controller = new AbortController();
  signal.addEventListener('abort', () => setTimeout(() => controller.abort(), milliseconds).unref(), {
    once: true,
  });
  return controller.signal;
}

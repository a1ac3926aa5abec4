import { CLOCK_SKEW_MS, type Clock, HOUR, MINUTE, SECOND } from '../kernel/clock.js';
import type { Random } from '../kernel/secrets.js';
import type { JobLog, Lease } from '../ops/jobs.js';
import type { MailDocument, MailStatus, Mails } from './store.js';
import { DeliveryError, type Message, type Outcome, type Transport } from './transport.js';

/**
 * Sends the mails that are due. An attempt raises `attempts` in one conditional update and stores its outcome only while
 * that number is unchanged. A mail is therefore sent twice in one case only: the mail server accepts it and the process
 * ends before the outcome is stored.
 */

/** A mail without an outcome, which still has its values. */
type Sendable = MailDocument & Required<Pick<MailDocument, 'values'>>;

export interface RelayOptions {
  mails: Mails;
  transport: Transport;
  messageOf(mail: Sendable): Promise<Message>;
  settings: () => Promise<{ emailNotifications: boolean }>;
  versionOf: (userId: string, versionField: string) => Promise<number | null>;
  clock: Clock;
  random: Random;
  log: JobLog;
}

const MAX_ATTEMPTS = 8;

/** Mails sent at once. */
const CONCURRENCY = 5;

/** Mails read at once. */
const BATCH = 50;

/** After which another process takes a mail over: longer than any attempt. */
const LEASE_MS = MINUTE;

/** The longest back-off: the last but one attempt waits for at most 7.6 hours. */
const MAX_BACK_OFF_MS = 8 * HOUR;

/** How long a stop waits for attempts that have begun. */
const STOP_TIMEOUT_MS = 3 * SECOND;

export function createRelay(options: RelayOptions): (lease: Lease) => Promise<void> {
  const { mails, transport, messageOf, settings, versionOf, clock, random, log } = options;

  /** Stores the outcome; null when another process has taken the mail over. */
  const finish = (mail: MailDocument, status: MailStatus, reason?: string) =>
    mails.updateOne(
      { id: mail.id, attempts: mail.attempts },
      {
        set: { status, endedAt: clock.now(), ...(reason && { reason }) },
        unset: ['dueAt', 'values', ...(reason ? [] : (['reason'] as const))],
      },
    );

  const postpone = (mail: MailDocument, milliseconds: number, reason?: string) =>
    mails.updateOne(
      { id: mail.id, attempts: mail.attempts },
      { set: { status: 'queued', dueAt: clock.now() + milliseconds, ...(reason && { reason }) } },
    );

  const isSendable = async ({ after }: MailDocument): Promise<'yes' | 'not-yet' | 'never'> => {
    if (!after) return 'yes';
    const version = await versionOf(after.userId, after.is);
    if (version === null) return 'never';
    return version >= after.reaches ? 'yes' : 'not-yet';
  };

  /** Whether to send a mail now. Otherwise it has been postponed, or has its outcome. */
  const isDue = async (mail: MailDocument): Promise<boolean> => {
    const sendable = await isSendable(mail);
    const age = clock.now() - mail.createdAt;
    if (sendable === 'never') await finish(mail, 'dropped', 'the change was not stored');
    else if (clock.now() >= mail.expiresAt) {
      if (sendable === 'yes') await finish(mail, 'expired', mail.reason);
      else await finish(mail, 'dropped', 'the change was not stored');
    } else if (sendable === 'not-yet') await postpone(mail, Math.min(Math.max(age, SECOND), MINUTE));
    else if (!mail.security && !(await settings()).emailNotifications) {
      await finish(mail, 'dropped', 'notification e-mails are disabled');
    } else if (mail.attempts >= MAX_ATTEMPTS) await finish(mail, 'failed', mail.reason ?? 'interrupted');
    else return true;
    return false;
  };

  const deliver = async (due: MailDocument, signal: AbortSignal): Promise<void> => {
    if (!(await isDue(due))) return;
    const { id, attempts, dueAt = 0 } = due;
    const leased = await mails.updateOne(
      { id, attempts, dueAt },
      { set: { status: 'sending', dueAt: clock.now() + LEASE_MS }, inc: { attempts: 1 } },
    );
    if (!leased?.values) return;
    const result = await attempt({ ...leased, values: leased.values }, signal);
    if (!(result instanceof DeliveryError)) await finish(leased, result);
    else if (signal.aborted) await postpone(leased, 0);
    else if (result.isFinal || leased.attempts >= MAX_ATTEMPTS) {
      await finish(leased, 'failed', result.message);
      const mail = { id, template: leased.template, attempts: leased.attempts };
      log.error({ mail, reason: result.message }, 'an e-mail could not be sent');
    } else await postpone(leased, backOff(leased.attempts, random), result.message);
  };

  /** The outcome at the transport. A mail that cannot be composed counts as failed and does not end the run. */
  const attempt = async (mail: Sendable, signal: AbortSignal): Promise<Outcome | DeliveryError> => {
    try {
      return await transport.send(await messageOf(mail), signal);
    } catch (error) {
      if (error instanceof DeliveryError) return error;
      log.error(
        { err: error, mail: { id: mail.id, template: mail.template } },
        'an e-mail could not be composed',
      );
      return new DeliveryError('could not be composed', false);
    }
  };

  return async ({ signal }) => {
    const deadline = abortAfter(signal, STOP_TIMEOUT_MS);
    const work = async (dueAt: { lte: number } | { gt: number }) => {
      for (let isMore = true; isMore && !signal.aborted; ) {
        const { items } = await mails.page({ where: { dueAt }, sort: 'dueAt', limit: BATCH });
        await inParallel(items, signal, (mail) => deliver(mail, deadline));
        isMore = items.length === BATCH;
      }
    };
    await work({ lte: clock.now() });
    // Due by a clock that has been set back since.
    await work({ gt: clock.now() + MAX_BACK_OFF_MS + CLOCK_SKEW_MS });
  };
}

/** 30 seconds, then three times as long each time: eight attempts in nine hours, with a jitter of 25 %. */
function backOff(attempts: number, random: Random): number {
  const share = random.bytes(2).readUInt16BE() / 0xffff;
  return Math.round(30 * SECOND * 3 ** (attempts - 1) * (0.75 + share / 2));
}

/** A signal that aborts some time after another one. */
function abortAfter(signal: AbortSignal, milliseconds: number): AbortSignal {
  const controller = new AbortController();
  signal.addEventListener('abort', () => setTimeout(() => controller.abort(), milliseconds).unref(), {
    once: true,
  });
  return controller.signal;
}

/** Does `work` on every item, a few at a time, and begins none after `signal` aborts. Rejects after the last one, with the first failure. */
async function inParallel<T>(
  items: T[],
  signal: AbortSignal,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const waiting = items.values();
  const lane = async () => {
    for (const item of waiting) if (!signal.aborted) await work(item);
  };
  const lanes = await Promise.allSettled(Array.from({ length: CONCURRENCY }, lane));
  const failed = lanes.find((result) => result.status === 'rejected');
  if (failed) throw failed.reason;
}

import { type Clock, HOUR, MINUTE, SECOND, SKEW } from '../kernel/clock.js';
import type { Random } from '../kernel/secrets.js';
import type { JobLog, Lease } from '../ops/jobs.js';
import type { After, MailDocument, MailStatus, Mails } from './store.js';
import { DeliveryError, type Message, type Outcome, type Transport } from './transport.js';

/**
 * Sends what is due. Each attempt claims its mail by raising `attempts` in one conditional update; the outcome is
 * written only where the number is still the same. So a mail goes out twice in one case alone: the server took it
 * and the process was gone before the store knew.
 */

/** A mail on its way, which still has its values. */
type Sendable = MailDocument & Required<Pick<MailDocument, 'values'>>;

export interface RelayOptions {
  mails: Mails;
  transport: Transport;
  messageOf(mail: Sendable): Promise<Message>;
  settings: () => Promise<{ emailNotifications: boolean }>;
  holds: (after: After) => Promise<'yes' | 'not-yet' | 'never'>;
  clock: Clock;
  random: Random;
  log: JobLog;
}

const MOST_ATTEMPTS = 8;

/** Mails that are on their way at once. */
const WIDTH = 5;

/** Mails read at once. */
const BATCH = 50;

/** After which a mail is taken over from a process that is gone: longer than any attempt. */
const CLAIM = MINUTE;

/** No mail is put off for longer, in milliseconds: the last but one attempt waits for 7.6 hours at most. */
const LONGEST_WAIT = 8 * HOUR;

/** How long a stop waits for attempts that were begun. */
const GRACE = 3 * SECOND;

export function createRelay(options: RelayOptions): (lease: Lease) => Promise<void> {
  const { mails, transport, messageOf, settings, holds, clock, random, log } = options;

  /** Ends the way of a mail; null where somebody else has had a hand in it. */
  const end = (mail: MailDocument, status: MailStatus, reason?: string) =>
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

  /** Whether a mail is to go out now. Where not, that has been seen to. */
  const isToGo = async (mail: MailDocument): Promise<boolean> => {
    const truth = mail.after ? await holds(mail.after) : 'yes';
    const age = clock.now() - mail.createdAt;
    if (truth === 'never') await end(mail, 'dropped', 'what it tells of did not happen');
    else if (clock.now() >= mail.expiresAt) {
      if (truth === 'yes') await end(mail, 'expired', mail.reason);
      else await end(mail, 'dropped', 'what it tells of did not happen');
    } else if (truth === 'not-yet') await postpone(mail, Math.min(Math.max(age, SECOND), MINUTE));
    else if (!mail.security && !(await settings()).emailNotifications) {
      await end(mail, 'dropped', 'mails are switched off');
    } else if (mail.attempts >= MOST_ATTEMPTS) await end(mail, 'failed', mail.reason ?? 'interrupted');
    else return true;
    return false;
  };

  const deliver = async (due: MailDocument, signal: AbortSignal): Promise<void> => {
    if (!(await isToGo(due))) return;
    const { id, attempts, dueAt = 0 } = due;
    const claimed = await mails.updateOne(
      { id, attempts, dueAt },
      { set: { status: 'sending', dueAt: clock.now() + CLAIM }, inc: { attempts: 1 } },
    );
    if (!claimed?.values) return;
    const result = await attempt({ ...claimed, values: claimed.values }, signal);
    if (!(result instanceof DeliveryError)) await end(claimed, result);
    else if (signal.aborted) await postpone(claimed, 0);
    else if (result.isFinal || claimed.attempts >= MOST_ATTEMPTS) {
      await end(claimed, 'failed', result.message);
      const mail = { id, template: claimed.template, attempts: claimed.attempts };
      log.error({ mail, reason: result.message }, 'a mail could not be sent');
    } else await postpone(claimed, backOff(claimed.attempts, random), result.message);
  };

  /** What the transport says. A mail that cannot be put together is one that failed, not the end of the run. */
  const attempt = async (mail: Sendable, signal: AbortSignal): Promise<Outcome | DeliveryError> => {
    try {
      return await transport.send(await messageOf(mail), signal);
    } catch (error) {
      if (error instanceof DeliveryError) return error;
      log.error(
        { err: error, mail: { id: mail.id, template: mail.template } },
        'a mail could not be composed',
      );
      return new DeliveryError('could not be composed', false);
    }
  };

  return async ({ signal }) => {
    const cutOff = later(signal, GRACE);
    const work = async (dueAt: { lte: number } | { gt: number }) => {
      for (let isMore = true; isMore && !signal.aborted; ) {
        const { items } = await mails.page({ where: { dueAt }, sort: 'dueAt', limit: BATCH });
        await inParallel(items, signal, (mail) => deliver(mail, cutOff));
        isMore = items.length === BATCH;
      }
    };
    await work({ lte: clock.now() });
    // Made due by a clock that has been put back since.
    await work({ gt: clock.now() + LONGEST_WAIT + SKEW });
  };
}

/** 30 seconds, then three times as long each time: eight attempts in nine hours. A quarter more or less, so that mails spread. */
function backOff(attempts: number, random: Random): number {
  const share = random.bytes(2).readUInt16BE() / 0xffff;
  return Math.round(30 * SECOND * 3 ** (attempts - 1) * (0.75 + share / 2));
}

/** A signal that follows another one after a while. */
function later(signal: AbortSignal, milliseconds: number): AbortSignal {
  const controller = new AbortController();
  signal.addEventListener('abort', () => setTimeout(() => controller.abort(), milliseconds).unref(), {
    once: true,
  });
  return controller.signal;
}

/** Does `work` on every item, a few at a time, and on no further one once `signal` says so. Fails after the last, with the first failure. */
async function inParallel<T>(
  items: T[],
  signal: AbortSignal,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const waiting = items.values();
  const lane = async () => {
    for (const item of waiting) if (!signal.aborted) await work(item);
  };
  const lanes = await Promise.allSettled(Array.from({ length: WIDTH }, lane));
  const failed = lanes.find((result) => result.status === 'rejected');
  if (failed) throw failed.reason;
}

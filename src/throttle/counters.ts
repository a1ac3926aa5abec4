import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { CLOCK_SKEW_MS, type Clock, isRecent, SECOND } from '../kernel/clock.js';
import { type AppError, httpErrors } from '../kernel/errors.js';
import type { Audit } from '../ops/audit.js';
import type { Expiring } from '../ops/purge.js';
import { KeyedSemaphore } from '../ops/semaphore.js';
import { nullIfTaken, type Store } from '../storage/collection.js';
import type { Limit, LimitState } from './limits.js';

/**
 * Counters in the store, so that they hold for every process and survive a restart. Everything is counted before it
 * happens, by one conditional write on one document.
 */

export interface CounterDocument extends LimitState {
  /** The name of the limit and the hash of what is counted. */
  id: string;
  count: number;
  /** How many of `count` are reservations whose outcome is not known yet; absent in documents of older versions. */
  pending?: number;
  /** When the newest reservation was made. */
  reservedAt?: number;
  /** When the count began, which tells it from a later one of the same counter; absent in older documents. */
  startedAt?: number;
}

/** What is counted, and the address of the client that it is counted for. */
export interface Counted {
  limit: Limit;
  key: string;
  ip: string;
}

/** A failure that is counted before it is known to be one. Its outcome must be reported, once. */
export interface Reservation {
  /** It failed, and stays counted. */
  confirm(): Promise<void>;
  /** It did not fail. Takes back this one and no other. */
  release(): Promise<void>;
}

export interface Counters {
  /** @throws RATE_LIMITED when one of them refuses: the first one of the list */
  check(counted: readonly Counted[]): Promise<void>;
  /** Counts something that happens. @throws RATE_LIMITED */
  count(counted: Counted): Promise<void>;
  /**
   * Counts a failure in advance. Waits where there is room only if reservations of others turn out to be no failures.
   * @throws RATE_LIMITED, and OVERLOADED when the others take too long
   */
  reserve(counted: Counted): Promise<Reservation>;
  /** For the purge. */
  documents: Expiring;
}

/** Requests that may wait for their turn at one counter, which is written by one of them at a time. */
const QUEUE = 1024;

/** How long the outcome of a reservation is waited for; after that, its process is taken for dead. */
const PENDING_MS = 10 * SECOND;

const POLL_MS = 20;

export interface CounterDependencies {
  clock: Clock;
  audit: Pick<Audit, 'recordFailure'>;
  /** Waits before a counter is read again. */
  pause?: (milliseconds: number) => Promise<unknown>;
}

export function createCounters(store: Store, { clock, audit, pause = sleep }: CounterDependencies): Counters {
  const documents = store.collection<CounterDocument>('throttles', {
    fields: ['count', 'until', 'pending'],
    indexes: [['expiresAt']],
  });
  const turns = new KeyedSemaphore(1, QUEUE);

  /** The counter's document, and the same unless its count has ended. */
  const look = async ({ limit, key }: Counted) => {
    const stored = await documents.findOne({ id: idOf(limit, key) });
    // A count that ends even later was made by a clock that ran far ahead, and must not bind for long.
    const left = (stored?.expiresAt ?? 0) - clock.now();
    return { stored, alive: left > 0 && left <= limit.memory + CLOCK_SKEW_MS ? stored : null };
  };

  const refusal = async ({ limit, ip }: Counted, until: number): Promise<AppError> => {
    await audit.recordFailure({ event: 'throttle.hit', ip, detail: limit.name });
    const seconds = Math.ceil((until - clock.now()) / SECOND);
    return httpErrors.RATE_LIMITED({ headers: { 'retry-after': String(Math.max(1, seconds)) } });
  };

  /** Whether reservations that are still open may make room. */
  const isOpen = ({ pending = 0, reservedAt = 0 }: CounterDocument): boolean =>
    pending > 0 && isRecent(reservedAt, { now: clock.now(), within: PENDING_MS });

  /** Counts one more. Answers with the document before and after; `pending` is 1 for a reservation. */
  const add = async (counted: Counted, pending: 0 | 1) => {
    const { limit, key } = counted;
    const id = idOf(limit, key);
    for (let polls = 0; ; ) {
      const { stored, alive } = await look(counted);
      const now = clock.now();
      if (alive && alive.until > now) {
        if (pending === 0 || !isOpen(alive)) throw await refusal(counted, alive.until);
        if (++polls * POLL_MS > PENDING_MS) throw httpErrors.OVERLOADED();
        await pause(POLL_MS);
        continue;
      }
      const count = (alive?.count ?? 0) + 1;
      const after = {
        count,
        ...limit.next(count, now, alive?.expiresAt),
        startedAt: alive?.startedAt ?? now,
        pending: (alive?.pending ?? 0) + pending,
        ...(pending > 0 && { reservedAt: now }),
      };
      const written = stored
        ? await documents.updateOne(unchanged(stored), { set: after })
        : await documents.insert({ id, ...after }).then(() => after, nullIfTaken);
      // Otherwise another request was counted first, perhaps as the last that there was room for.
      if (written) return { before: alive, after: { id, ...after } };
    }
  };

  const inTurn = (counted: Counted, pending: 0 | 1) =>
    turns.run(idOf(counted.limit, counted.key), () => add(counted, pending));

  const release = async (
    { limit }: Counted,
    { before, after }: { before: CounterDocument | null; after: CounterDocument },
  ): Promise<void> => {
    const { id, count, until, expiresAt, startedAt } = after;
    // In most cases nothing has happened at the counter since: then it becomes what it was.
    const restored = await documents.updateOne(
      { id, count, until, expiresAt },
      {
        set: { until: 0, expiresAt: before?.expiresAt ?? clock.now() },
        inc: { count: -1, pending: -1 },
      },
    );
    if (restored) return;
    for (;;) {
      const now = clock.now();
      const stored = await documents.findOne({ id, pending: { gt: 0 } });
      if (!stored || stored.startedAt !== startedAt) return;
      const left = stored.count - 1;
      const lastsUntil = stored.expiresAt - (limit.step ?? 0);
      const hasRoom = left === 0 || limit.next(left, now, lastsUntil - (limit.step ?? 0)).until <= now;
      const reduced = await documents.updateOne(unchanged(stored), {
        set: { until: hasRoom ? 0 : stored.until, expiresAt: lastsUntil },
        inc: { count: -1, pending: -1 },
      });
      if (reduced) return;
    }
  };

  return {
    async check(counted) {
      const looks = await Promise.all(counted.map(look));
      for (const [index, { alive }] of looks.entries()) {
        if (alive && alive.until > clock.now() && !isOpen(alive))
          throw await refusal(counted[index] as Counted, alive.until);
      }
    },

    async count(counted) {
      await inTurn(counted, 0);
    },

    async reserve(counted) {
      const made = await inTurn(counted, 1);
      return {
        // The delay that follows from a failure was written in advance.
        async confirm() {
          await documents.updateOne({ id: made.after.id, pending: { gt: 0 } }, { inc: { pending: -1 } });
        },
        release: () => release(counted, made),
      };
    },

    documents,
  };
}

/** The condition that nothing has been counted since this document was read. */
const unchanged = ({ id, count, pending, until, expiresAt }: CounterDocument) => ({
  id,
  count,
  pending: pending ?? null,
  until,
  expiresAt,
});

/** Names and addresses are stored as hashes only. */
function idOf(limit: Limit, key: string): string {
  return `${limit.name}:${createHash('sha256').update(key).digest('base64url')}`;
}

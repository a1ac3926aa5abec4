import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { CLOCK_SKEW_MS, type Clock, isRecent, SECOND } from '../kernel/clock.js';
import { type AppError, httpErrors } from '../kernel/errors.js';
import type { Audit } from '../ops/audit.js';
import { KeyedSemaphore } from '../ops/semaphore.js';
import { nullIfTaken, type Store } from '../storage/collection.js';
import { currentBudget } from '../storage/request-budget.js';
import type { Limit, LimitState } from './limits.js';

/**
 * Counters in the store, shared by all processes. An event is counted before it happens, by a conditional write to one
 * document.
 */

export interface CounterDocument extends LimitState {
  /** The name of the limit and the hash of the key. */
  id: string;
  count: number;
  /** Reservations in `count` whose outcome is not known yet. */
  pending: number;
  /** Time of the latest reservation; absent before the first. */
  reservedAt?: number;
  /** Start of the count, which identifies it after a reset. */
  startedAt: number;
}

/** An event to count. `ip` is the address of the client, for the audit. */
export interface Counted {
  limit: Limit;
  key: string;
  ip: string;
}

/** A failure that is counted in advance. Exactly one of the methods must be called, once the outcome is known. */
export interface Reservation {
  /** The attempt failed and stays counted. */
  confirm(): Promise<void>;
  /** The attempt succeeded: removes this reservation from the count. */
  release(): Promise<void>;
}

export type Counters = ReturnType<typeof createCounters>;

/** Requests that wait for one counter; they write to it one after the other. */
const MAX_QUEUE = 1024;

/** After this time without an outcome, the process of a reservation is considered crashed. */
const PENDING_TIMEOUT_MS = 10 * SECOND;

const POLL_INTERVAL_MS = 20;

export interface CounterDependencies {
  clock: Clock;
  audit: Pick<Audit, 'recordFailure'>;
  /** Called with the name of the limit for each rejection. */
  onRefusal?: ((limit: string) => void) | undefined;
  /** Waits between polls. */
  pause?: (milliseconds: number) => Promise<unknown>;
}

export function createCounters(
  store: Store,
  { clock, audit, onRefusal, pause = sleep }: CounterDependencies,
) {
  const documents = store.collection<CounterDocument>('throttles', {
    numbers: ['count', 'until', 'pending', 'expiresAt'],
    indexes: [['expiresAt']],
  });
  const semaphores = new KeyedSemaphore(1, MAX_QUEUE);

  /** The stored document, and the same document as `alive` if its count has not expired. */
  const read = async ({ limit, key }: Counted) => {
    const stored = await documents.findOne({ id: idOf(limit, key) });
    // A later expiration was written by a fast clock.
    const left = (stored?.expiresAt ?? 0) - clock.now();
    return { stored, alive: left > 0 && left <= limit.memory + CLOCK_SKEW_MS ? stored : null };
  };

  const createError = async ({ limit, ip }: Counted, until: number): Promise<AppError> => {
    onRefusal?.(limit.name);
    await audit.recordFailure({ event: 'throttle.hit', ip, detail: limit.name });
    const seconds = Math.ceil((until - clock.now()) / SECOND);
    return httpErrors.RATE_LIMITED({ headers: { 'retry-after': String(Math.max(1, seconds)) } });
  };

  /** Whether pending reservations may still be released. */
  const hasPending = ({ pending, reservedAt = 0 }: CounterDocument): boolean =>
    pending > 0 && isRecent(reservedAt, { now: clock.now(), within: PENDING_TIMEOUT_MS });

  /** Increments a counter and returns the document before and after; `pending` is 1 for a reservation. */
  const add = async (counted: Counted, pending: 0 | 1) => {
    const { limit, key } = counted;
    const id = idOf(limit, key);
    const startedAt = clock.now();
    for (let pausedMs = 0; ; ) {
      const { stored, alive } = await read(counted);
      const now = clock.now();
      if (alive && alive.until > now) {
        if (pending === 0 || !hasPending(alive)) throw await createError(counted, alive.until);
        pausedMs += POLL_INTERVAL_MS;
        const budget = currentBudget();
        // A slow store makes the polls longer than their pauses.
        const isOver = Math.max(pausedMs, now - startedAt) > PENDING_TIMEOUT_MS;
        if (isOver || (budget && budget.leftMs() <= 0)) throw httpErrors.OVERLOADED();
        await pause(POLL_INTERVAL_MS).finally(budget?.beginWait());
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
      // Otherwise another request has changed the counter, and the limit is checked again.
      if (written) return { before: alive, after: { id, ...after } };
    }
  };

  const addInTurn = (counted: Counted, pending: 0 | 1) =>
    semaphores.run(idOf(counted.limit, counted.key), () => add(counted, pending));

  const release = async (
    { limit }: Counted,
    { before, after }: { before: CounterDocument | null; after: CounterDocument },
  ): Promise<void> => {
    const { id, count, until, expiresAt, startedAt } = after;
    // Usually the counter has not changed since, and its previous state is restored.
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
    /** @throws RATE_LIMITED for the first counter that is exhausted */
    async check(counted: readonly Counted[]) {
      const states = await Promise.all(counted.map(read));
      for (const [index, { alive }] of states.entries()) {
        if (alive && alive.until > clock.now() && !hasPending(alive))
          throw await createError(counted[index] as Counted, alive.until);
      }
    },

    /** @throws RATE_LIMITED */
    async count(counted: Counted) {
      await addInTurn(counted, 0);
    },

    /**
     * Counts a failure in advance. If only pending reservations exhaust the counter, waits for their outcome.
     * @throws RATE_LIMITED, or OVERLOADED after a timeout
     */
    async reserve(counted: Counted): Promise<Reservation> {
      const made = await addInTurn(counted, 1);
      return {
        // The delay after a failure was written with the reservation.
        async confirm() {
          await documents.updateOne({ id: made.after.id, pending: { gt: 0 } }, { inc: { pending: -1 } });
        },
        release: () => release(counted, made),
      };
    },

    /** For the purge. */
    documents,
  };
}

/** The condition that a document has not changed since it was read. */
const unchanged = ({ id, count, pending, until, expiresAt }: CounterDocument) => ({
  id,
  count,
  pending,
  until,
  expiresAt,
});

/** Account names and addresses are stored as hashes only. */
function idOf(limit: Limit, key: string): string {
  return `${limit.name}:${createHash('sha256').update(key).digest('base64url')}`;
}

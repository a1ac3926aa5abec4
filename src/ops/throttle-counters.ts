import { createHash } from 'node:crypto';
import { type Clock, DAY, MINUTE, SECOND } from '../kernel/clock.js';
import { type AppError, httpErrors } from '../kernel/errors.js';
import { Gates } from '../kernel/gate.js';
import { nullIfTaken, type Store } from '../storage/collection.js';
import type { Audit } from './audit.js';
import type { Expiring } from './purge.js';

/**
 * Counters in the store, so that they hold for every process and survive a restart. Whoever is counted pays first:
 * one conditional write on one document, and only then is done what the counter bounds.
 */

export interface CounterDocument {
  /** The name of the limit and the hash of what is counted. */
  id: string;
  count: number;
  /** Everything is refused before; 0 for nothing. */
  until: number;
  /** The count begins anew after it. */
  expiresAt: number;
  /** The refusals of this time stand in the audit. */
  told?: boolean;
}

/** When a counter refuses, and what it remembers. Times are epoch milliseconds. */
export interface Limit {
  name: string;
  /** Longest that a count is remembered. */
  memory: number;
  /** What follows from the `count`-th time; `expiresAt` is that of a count that goes on. */
  next(count: number, now: number, expiresAt?: number): { until: number; expiresAt: number };
}

/** So many in a window, which begins with the first. */
export function atMost(name: string, most: number, window: number): Limit {
  return {
    name,
    memory: window,
    next: (count, now, expiresAt = now + window) => ({ expiresAt, until: count >= most ? expiresAt : 0 }),
  };
}

/** So many freely, then each only after a delay that doubles up to the longest; forgotten after a day without one. */
export function growingDelay(
  name: string,
  { free, first, longest }: { free: number; first: number; longest: number },
): Limit {
  return {
    name,
    memory: DAY,
    next: (count, now) => ({
      expiresAt: now + DAY,
      until: count < free ? 0 : now + Math.min(first * 2 ** (count - free), longest),
    }),
  };
}

/** What is counted, and where the one who is counted comes from. */
export interface Counted {
  limit: Limit;
  key: string;
  ip: string;
}

/** What was paid, and can be given back. */
export type Payment = Omit<CounterDocument, 'told'>;

export interface Counters {
  /** Whether anything is counted there. @throws RATE_LIMITED for as long as the strictest of them refuses */
  check(counted: readonly Counted[]): Promise<boolean>;
  /** @throws RATE_LIMITED */
  pay(counted: Counted): Promise<Payment>;
  /** Undoes a payment: what was paid for did not happen, or need not be counted. */
  giveBack(payment: Payment): Promise<void>;
  /** Begins anew. */
  clear(counted: Pick<Counted, 'limit' | 'key'>): Promise<void>;
  /** For the purge. */
  documents: Expiring;
}

/** A count that ends later than this after its time was made by a clock that ran ahead, and must not bind for long. */
const SKEW = MINUTE;

/** Whoever floods one counter waits in this queue, and so is never many writes. */
const QUEUE = 1024;

export function createCounters(store: Store, { clock, audit }: { clock: Clock; audit: Audit }): Counters {
  const documents = store.collection<CounterDocument>('throttles', {
    fields: ['count', 'until', 'told'],
    indexes: [['expiresAt']],
  });
  const turns = new Gates(1, QUEUE);

  /** The counter's document, and the same unless its count is over. */
  const look = async ({ limit, key }: Pick<Counted, 'limit' | 'key'>) => {
    const stored = await documents.findOne({ id: idOf(limit, key) });
    const left = (stored?.expiresAt ?? 0) - clock.now();
    return { stored, alive: left > 0 && left <= limit.memory + SKEW ? stored : null };
  };

  const refusal = async ({ limit, ip }: Counted, { id, until, told }: CounterDocument): Promise<AppError> => {
    // Once for all refusals of one time, in whichever process.
    const isFirst =
      told === undefined &&
      (await documents.updateOne({ id, until, told: null }, { set: { told: true } })) !== null;
    if (isFirst) await audit.record({ event: 'throttle.hit', ip, detail: limit.name });
    const seconds = Math.ceil((until - clock.now()) / SECOND);
    return httpErrors.RATE_LIMITED({ headers: { 'retry-after': String(Math.max(1, seconds)) } });
  };

  const pay = async (counted: Counted): Promise<Payment> => {
    const { limit, key } = counted;
    const id = idOf(limit, key);
    for (;;) {
      const { stored, alive } = await look(counted);
      const now = clock.now();
      if (alive && alive.until > now) throw await refusal(counted, alive);
      const count = (alive?.count ?? 0) + 1;
      const state = { count, ...limit.next(count, now, alive?.expiresAt) };
      const paid = stored
        ? await documents.updateOne(
            { id, count: stored.count, until: stored.until, expiresAt: stored.expiresAt },
            { set: state, unset: ['told'] },
          )
        : await documents.insert({ id, ...state }).then(() => state, nullIfTaken);
      // Lost: somebody else has paid, perhaps the last that there was room for.
      if (paid) return { id, ...state };
    }
  };

  return {
    async check(counted) {
      const looks = await Promise.all(counted.map(async (one) => ({ one, ...(await look(one)) })));
      const now = clock.now();
      const [strictest] = looks
        .flatMap(({ one, alive }) => (alive && alive.until > now ? { one, alive } : []))
        .sort((a, b) => b.alive.until - a.alive.until);
      if (strictest) throw await refusal(strictest.one, strictest.alive);
      return looks.some(({ alive }) => alive !== null);
    },

    pay: (counted) => turns.run(idOf(counted.limit, counted.key), () => pay(counted)),

    async giveBack({ id, count, until, expiresAt }) {
      // Nobody has paid since: then it is as it was. Otherwise the delay of the last one stays.
      const asItWas = await documents.updateOne(
        { id, count, until, expiresAt },
        { set: { count: count - 1, until: 0 } },
      );
      if (!asItWas) await documents.updateOne({ id, count: { gt: 0 } }, { inc: { count: -1 } });
    },

    async clear({ limit, key }) {
      await documents.deleteOne({ id: idOf(limit, key) });
    },

    documents,
  };
}

/** Names and addresses are stored as hashes only. */
function idOf(limit: Limit, key: string): string {
  return `${limit.name}:${createHash('sha256').update(key).digest('base64url')}`;
}

import { DAY } from '../kernel/clock.js';

/** Times are Unix times in milliseconds. */
export interface LimitState {
  /** Events are rejected before this time; 0 if none are. */
  until: number;
  /** The count is reset at this time. */
  expiresAt: number;
}

/** The limits whose numbers are options. */
export type Rate = 'registrations' | 'logins' | 'mails' | 'requests';
export type Rates = Readonly<Record<Rate, number>>;

/** A rate limit. */
export interface Limit {
  name: string;
  /** Maximum lifetime of a count, in milliseconds. */
  memory: number;
  /** The state after the `count`-th event; `expiresAt` is that of the current count. */
  next(count: number, now: number, expiresAt?: number): LimitState;
  /** Milliseconds that each event adds to `expiresAt`; absent if it does not depend on the count. */
  step?: number;
  /** The same limit with the number of an option. Absent: it is not configurable. */
  at?(rates: Rates): Limit;
  /** The limit of an IPv6 /48, which counts the events of all its blocks, too. Absent: blocks are counted alone. */
  ofNetwork?: Limit;
}

/** Share of an IPv6 /48 in events that lead to e-mails: a customer with many blocks gets no more than this many of them. */
const BLOCKS_OF_NETWORK = 5;

interface WindowOptions {
  /** The option that sets `most`; with `floor`, only if it is higher. */
  rate?: Rate;
  floor?: true;
  /** Whether the events lead to e-mails, so that an IPv6 /48 is counted, too. */
  sendsMail?: true;
}

/** A fixed window: at most `most` events in a window that starts with the first one. */
export function atMost(name: string, most: number, window: number, options: WindowOptions = {}): Limit {
  const { rate, floor, sendsMail } = options;
  return {
    name,
    memory: window,
    ...(rate && {
      at: (rates: Rates) =>
        atMost(name, floor ? Math.max(most, rates[rate]) : rates[rate], window, {
          ...(sendsMail && { sendsMail }),
        }),
    }),
    ...(sendsMail && { ofNetwork: atMost(`${name}.network`, BLOCKS_OF_NETWORK * most, window) }),
    next: (count, now, expiresAt = now + window) => ({ expiresAt, until: count >= most ? expiresAt : 0 }),
  };
}

/** Exponential backoff: `free` events without a delay, then delays that double up to `longest`; reset after a day without events. */
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

/**
 * A leaky bucket: `burst` events at once and one more every `interval` milliseconds, at most `burst + T / interval` in
 * any period of length T.
 */
export function leakyBucket(name: string, { burst, interval }: { burst: number; interval: number }): Limit {
  return {
    name,
    memory: burst * interval,
    step: interval,
    next(_count, now, emptyAt = now) {
      const expiresAt = Math.max(emptyAt, now) + interval;
      const roomAt = expiresAt - (burst - 1) * interval;
      return { expiresAt, until: roomAt > now ? roomAt : 0 };
    },
  };
}

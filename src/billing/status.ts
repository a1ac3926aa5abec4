/** What the statuses of subscriptions mean to each other. */

/** From the one that is worth most to a user. An unknown one is worth the least. */
const BEST_FIRST = [
  'active',
  'trialing',
  'past_due',
  'unpaid',
  'paused',
  'incomplete',
  'canceled',
  'incomplete_expired',
];

/** In the order in which a subscription goes through them: of two that claim the same second, the later one holds. */
const IN_TIME = [
  'incomplete',
  'trialing',
  'active',
  'past_due',
  'unpaid',
  'paused',
  'incomplete_expired',
  'canceled',
];

const TERMINAL = ['canceled', 'incomplete_expired'];

/** Whether nothing comes after it. */
export const isTerminal = (status: string): boolean => TERMINAL.includes(status);

/** Whether a subscription is further on its way with `status` than with `other`. */
export const isFurther = (status: string, other: string): boolean =>
  IN_TIME.indexOf(status) > IN_TIME.indexOf(other);

interface Ranked {
  id: string;
  status: string;
  startedAt: number;
}

/** The subscription that speaks for its user: the best status, the newest of equals. */
export function bestOf<T extends Ranked>(subscriptions: readonly T[]): T | undefined {
  return subscriptions.toSorted(
    (a, b) =>
      worthOf(b) - worthOf(a) || b.startedAt - a.startedAt || (b.id > a.id ? 1 : b.id < a.id ? -1 : 0),
  )[0];
}

function worthOf({ status }: Ranked): number {
  const place = BEST_FIRST.indexOf(status);
  return place < 0 ? 0 : BEST_FIRST.length - place;
}

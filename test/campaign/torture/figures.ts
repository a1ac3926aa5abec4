/** How long clients could not read or write during an event. */
import type { Operation } from './history.js';

export interface EventFigures {
  event: string;
  configuration: string;
  /** From the beginning of the event until all processes were ready again, in milliseconds. */
  duration: number;
  /**
   * The longest time in which no client had a write, or a read, acknowledged; in milliseconds. Null if the clients pause
   * during the event.
   */
  writeGap: number | null;
  readGap: number | null;
  acknowledged: number;
  /** Requests with a 5xx. */
  refused: number;
  /** Requests without an answer. */
  unanswered: number;
}

/**
 * The longest interval between two acknowledgements that overlaps an event. Only requests on registers count, because their
 * clients send continuously.
 */
export function longestGap(
  operations: readonly Operation[],
  kind: Operation['kind'],
  { start, end }: { start: number; end: number },
): number {
  const ends = operations
    .filter((one) => one.rule === 'register' && one.kind === kind && one.outcome === 'ok')
    .map((one) => one.end)
    .sort((one, other) => one - other);
  let longest = 0;
  let last = start;
  for (const time of ends) {
    if (time < start) last = time;
    else {
      longest = Math.max(longest, time - last);
      if (time > end) return longest;
      last = time;
    }
  }
  return Math.max(longest, end - last);
}

/** The figures of one event, of the product that was affected more. */
export function figuresOf(
  operations: readonly Operation[],
  window: { start: number; end: number; isQuiet: boolean },
): Omit<EventFigures, 'event' | 'configuration'> {
  const concerned = operations.filter(({ start, end }) => end >= window.start && start <= window.end);
  const products = ['saas', 'idp'].map((name) => operations.filter(({ target }) => target.startsWith(name)));
  const gap = (kind: Operation['kind']) =>
    window.isQuiet ? null : Math.round(Math.max(...products.map((one) => longestGap(one, kind, window))));
  const count = (test: (one: Operation) => boolean) => concerned.filter(test).length;
  return {
    duration: Math.round(window.end - window.start),
    writeGap: gap('write'),
    readGap: gap('read'),
    acknowledged: count(({ outcome }) => outcome === 'ok'),
    refused: count(({ outcome, detail }) => outcome === 'unknown' && /^5\d\d/.test(detail)),
    unanswered: count(({ outcome, detail }) => outcome === 'unknown' && !/^5\d\d/.test(detail)),
  };
}

/** The worst figures of each event. */
export function worstOf(figures: readonly EventFigures[]): EventFigures[] {
  const worst = new Map<string, EventFigures>();
  for (const one of figures) {
    const engine = one.configuration.split(' ')[0] ?? '';
    const name = `${engine} ${one.event}`;
    const known = worst.get(name);
    worst.set(name, {
      event: one.event,
      configuration: engine,
      duration: Math.max(one.duration, known?.duration ?? 0),
      writeGap: longer(one.writeGap, known?.writeGap),
      readGap: longer(one.readGap, known?.readGap),
      acknowledged: one.acknowledged + (known?.acknowledged ?? 0),
      refused: one.refused + (known?.refused ?? 0),
      unanswered: one.unanswered + (known?.unanswered ?? 0),
    });
  }
  return [...worst.values()];
}

const longer = (one: number | null, other: number | null | undefined): number | null =>
  one === null ? null : Math.max(one, other ?? 0);

import { CLOCK_SKEW_MS, type Clock, MINUTE, SECOND } from '../kernel/clock.js';
import type { Collection } from '../storage/collection.js';
import { pagesOf } from '../storage/pages.js';
import type { AuditRecord } from './audit.js';
import { type AuditFilter, auditIdsFrom, createAuditSearch, createMatcher } from './audit-search.js';

/** Reads the audit outside a server, which may be writing to it. */

type Records = Pick<Collection<AuditRecord>, 'page'>;

export interface AuditRange extends AuditFilter {
  from?: number | undefined;
  /** Exclusive. */
  until?: number | undefined;
}

/** The records of a range: the oldest first if it has a beginning, otherwise the newest first. */
export async function* readAudit(
  records: Records,
  { from, until, ...filter }: AuditRange,
  limit: number,
): AsyncGenerator<AuditRecord[], void, undefined> {
  if (from === undefined) {
    yield* readNewest(records, { ...filter, until }, limit);
    return;
  }
  const matches = createMatcher(filter);
  let left = limit;
  const where = { id: { gte: auditIdsFrom(from), ...(until !== undefined && { lt: auditIdsFrom(until) }) } };
  for await (const page of pagesOf(records, { where, sort: 'id' })) {
    const found = page.filter(matches).slice(0, left);
    yield found;
    left -= found.length;
    if (left <= 0) return;
  }
}

async function* readNewest(
  records: Records,
  query: AuditFilter & Pick<AuditRange, 'until'>,
  limit: number,
): AsyncGenerator<AuditRecord[], void, undefined> {
  const { search } = createAuditSearch(records);
  let left = limit;
  for (let after: string | undefined | null; after !== null && left > 0; ) {
    const page = await search({ ...query, after, limit: left });
    yield page.items;
    left -= page.items.length;
    after = page.next;
  }
}

/**
 * How much later than its time a record may be stored: after an outage of the store, or by a process whose clock is slow.
 */
const MAX_DELAY_MS = CLOCK_SKEW_MS + 10 * MINUTE;

/** Most records are stored within this time. */
const USUAL_DELAY_MS = 10 * SECOND;

/** Of this number of rounds, one looks for records that were stored unusually late. */
const ROUNDS_PER_LATE_SEARCH = 30;

export interface FollowOptions extends AuditFilter {
  /** Where to begin; absent: with the last records. */
  from?: number | undefined;
  /** The number of last records to begin with. */
  last: number;
  clock: Clock;
  signal: AbortSignal;
  /** Resolves when the next round is due, or when the signal is aborted. */
  pause(): Promise<void>;
}

/**
 * Yields records as they are stored, each once, until the signal is aborted. IDs sort by the clocks of their writers, and
 * those of one millisecond are random, so a record may be stored before one that has been read already: each round
 * reads the latest records again and skips those that it knows.
 */
export async function* followAudit(
  records: Records,
  { from, last, clock, signal, pause, ...filter }: FollowOptions,
): AsyncGenerator<AuditRecord[], void, undefined> {
  const matches = createMatcher(filter);
  const known = new Set<string>();
  const startedAt = clock.now();
  /** Records before this time are not read any more, so that a clock that is set back repeats none. */
  let horizon = from ?? startedAt - MAX_DELAY_MS;
  let previous = startedAt;

  const readFrom = async function* (time: number): AsyncGenerator<AuditRecord[], void, undefined> {
    const where = { id: { gte: auditIdsFrom(time) } };
    for await (const page of pagesOf(records, { where, sort: 'id' })) {
      const added = page.filter(({ id }) => !known.has(id));
      for (const { id } of added) known.add(id);
      yield added.filter(matches);
    }
  };

  if (from === undefined) {
    // What is stored already is known, and only the last records of it are shown.
    for await (const _ of readFrom(horizon));
    const shown: AuditRecord[] = [];
    for await (const page of readNewest(records, filter, last)) shown.push(...page);
    for (const { id } of shown) known.add(id);
    yield shown.reverse();
  } else yield* readFrom(from);

  for (let round = 1; !signal.aborted; round++) {
    await pause();
    if (signal.aborted) return;
    const now = clock.now();
    const latest = Math.min(now, previous);
    const searchesLate = round % ROUNDS_PER_LATE_SEARCH === 0;
    yield* readFrom(Math.max(horizon, latest - (searchesLate ? MAX_DELAY_MS : USUAL_DELAY_MS)));
    previous = now;
    if (!searchesLate) continue;
    horizon = Math.max(horizon, latest - MAX_DELAY_MS);
    const oldest = auditIdsFrom(horizon);
    for (const id of known) if (id < oldest) known.delete(id);
  }
}

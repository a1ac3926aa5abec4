import { addressBlock } from '../kernel/addresses.js';
import { invalidFields } from '../kernel/errors.js';
import { idsUntil } from '../kernel/secrets.js';
import type { Collection, Page } from '../storage/collection.js';
import { AUDIT_ID_PREFIX, type AuditRecord } from './audit.js';

/**
 * Searches the audit by what its records contain, without an index: one would double the bytes written for each sign-in.
 * Records are read from the newest to the oldest, up to a limit for each page.
 */
export type AuditSearch = ReturnType<typeof createAuditSearch>;

/** What a record contains. All conditions must match. */
export interface AuditFilter {
  /** The beginning of the event: `login.failed`, `login.`. */
  event?: string | undefined;
  /** The ID of the subject, the name of the operator who made the change, or the agent that acted. */
  subjects?: readonly string[] | undefined;
  /** The operator who made the change: a name, or the ID of a user. */
  by?: string | undefined;
  /** The address, or the address block. */
  ip?: string | undefined;
  /** An ID that a record has as its subject or in its detail. */
  about?: string | undefined;
}

export interface AuditQuery extends AuditFilter {
  /** The ID of the subject, in a collection that has an index of subjects. */
  subject?: string | undefined;
  from?: number | undefined;
  /** Exclusive. */
  until?: number | undefined;
  /** The `next` of the previous page. */
  after?: string | undefined;
  limit: number;
}

export interface AuditPage extends Page<AuditRecord> {
  /** The time down to which records were read, if the limit of a page was reached before it was full. */
  searchedUntil: number | undefined;
}

/** Records read for one page. */
const MAX_SCANNED = 10_000;
const BATCH_SIZE = 500;

/** Returns a function that compares a record with a filter. */
export function createMatcher({
  event = '',
  subjects,
  by,
  ip,
  about,
}: AuditFilter): (record: AuditRecord) => boolean {
  // Summaries of failed attempts have the block instead of the address.
  const addresses = ip === undefined ? undefined : [ip, addressBlock(ip)];
  return (record) =>
    record.event.startsWith(event) &&
    (by === undefined || record.by === by) &&
    (about === undefined || record.subject === about || record.detail?.includes(about) === true) &&
    (addresses === undefined || addresses.includes(record.ip)) &&
    (subjects === undefined ||
      [record.subject, record.by, record.actor?.sub].some(
        (name) => name !== undefined && subjects.includes(name),
      ));
}

/** The first ID of records from a time on. */
export const auditIdsFrom = (time: number): string => idsUntil(AUDIT_ID_PREFIX, Math.max(0, time) - 1);

export function createAuditSearch(records: Pick<Collection<AuditRecord>, 'page'>) {
  return {
    async search({ from = 0, until, after, limit, subject, ...filter }: AuditQuery): Promise<AuditPage> {
      if (after !== undefined && !/^aud_[0-9a-f]{32}$/.test(after)) {
        throw invalidFields({ path: 'after', message: 'must be the next value of the previous page' });
      }
      const matches = createMatcher(filter);
      const latest = after ?? (until === undefined ? undefined : auditIdsFrom(until));
      const oldest = auditIdsFrom(from);
      const found: AuditRecord[] = [];
      let last: AuditRecord | undefined;
      for (let scanned = 0; scanned < MAX_SCANNED; scanned += BATCH_SIZE) {
        const before = last?.id ?? latest;
        const where = {
          id: { gte: oldest, ...(before !== undefined && { lt: before }) },
          ...(subject !== undefined && { subject }),
        };
        const { items, next } = await records.page({ where, sort: 'id', desc: true, limit: BATCH_SIZE });
        for (const record of items) {
          last = record;
          if (matches(record)) found.push(record);
          if (found.length > limit) {
            const page = found.slice(0, limit);
            return { items: page, next: page.at(-1)?.id ?? null, searchedUntil: undefined };
          }
        }
        if (next === null) return { items: found, next: null, searchedUntil: undefined };
      }
      return { items: found, next: last?.id ?? null, searchedUntil: last?.at };
    },
  };
}

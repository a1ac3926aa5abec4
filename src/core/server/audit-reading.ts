import { setTimeout } from 'node:timers/promises';
import { SECOND, systemClock } from '../kernel/clock.js';
import type { AuditRecord } from '../ops/audit.js';
import { type AuditRange, followAudit, readAudit } from '../ops/audit-reader.js';
import type { Collection } from '../storage/collection.js';
import { requireExisting } from '../storage/existing.js';
import { readCollection } from '../storage/inspect.js';
import { resolveStore } from './backup.js';
import type { storeOptions } from './options.js';

export interface AuditReading extends AuditRange {
  /** Absent: no limit. With `follow`, the number of records to begin with. */
  limit?: number | undefined;
  /** Whether to wait for further records. */
  follow: boolean;
  signal: AbortSignal;
}

const LAST_RECORDS = 10;
const ROUND_MS = SECOND;

/**
 * Passes the audit records of a program, which may be running, to `show`, page by page. Changes nothing.
 *
 * @throws ConfigurationError, or StoreUnavailable if the store does not exist
 */
export async function readAuditOf(
  program: keyof typeof storeOptions,
  { follow, limit, signal, ...range }: AuditReading,
  show: (records: AuditRecord[]) => void,
): Promise<void> {
  const { databaseUri: uri } = resolveStore(program, {}).values;
  requireExisting(uri);
  await readCollection(uri, 'audit', async (records: Pick<Collection<AuditRecord>, 'page'>) => {
    // An abort ends the pause by a rejection, and the caller by its condition.
    const pause = () => setTimeout(ROUND_MS, undefined, { signal }).catch(() => undefined);
    const pages = follow
      ? followAudit(records, { ...range, last: limit ?? LAST_RECORDS, signal, pause, clock: systemClock })
      : readAudit(records, range, limit ?? Number.POSITIVE_INFINITY);
    for await (const page of pages) {
      if (signal.aborted) return;
      show(page);
    }
  });
}

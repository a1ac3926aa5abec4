import { auditRetentionOption, createAudit, createListedAudit } from '../ops/audit.js';
import type { RunReport } from '../ops/jobs.js';
import { openExistingStore } from '../storage/open.js';
import { resolveStore } from './backup.js';
import { createCommandContext } from './module-context.js';
import type { storeOptions } from './options.js';

const AUDITS = {
  'saas-backend': { createAudit: createListedAudit, retention: auditRetentionOption('AUDIT_RETENTION_DAYS') },
  idp: { createAudit, retention: auditRetentionOption('IDP_AUDIT_RETENTION_DAYS') },
};

export interface AuditPurge {
  /** Deletes records older than this. Default: the configured retention. */
  days?: number | undefined;
  /** Called with each warning, as a sentence. */
  warn: (message: string) => void;
  onProgress?: (removed: number) => void;
  signal: AbortSignal;
}

/**
 * Deletes old audit records of a program, which may be running. The deletion is recorded as `audit.purged`.
 *
 * @returns how many were older than how many `days`; incomplete if the signal was aborted before the last one
 * @throws ConfigurationError, or StoreUnavailable if the store does not exist
 */
export async function purgeAudit(
  program: keyof typeof storeOptions,
  { days: given, warn, onProgress = () => {}, signal }: AuditPurge,
): Promise<RunReport & { days: number }> {
  const { createAudit: create, retention } = AUDITS[program];
  const { values, production } = resolveStore(program, { auditRetentionDays: retention });
  const days = given ?? values.auditRetentionDays;
  const store = await openExistingStore(values.databaseUri);
  try {
    const { audit } = createCommandContext(store, { production, warn, createAudit: create });
    let removed = 0;
    let isComplete = false;
    // A run is bounded, so that the jobs of a server can alternate.
    while (!isComplete && !signal.aborted) {
      const report = await audit.purge(days, signal);
      removed += report.removed;
      isComplete = report.isComplete;
      onProgress(removed);
    }
    if (removed > 0) {
      const detail = `records older than ${days} days: ${removed}`;
      await audit.record({ event: 'audit.purged', ip: 'cli', detail });
    }
    return { removed, days, isComplete };
  } finally {
    await store.close();
  }
}

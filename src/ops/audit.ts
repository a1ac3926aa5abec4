import type { FastifyBaseLogger } from 'fastify';
import { Type } from 'typebox';
import { option } from '../config/options.js';
import { type Clock, DAY, every, MINUTE } from '../kernel/clock.js';
import { newId, type Random } from '../kernel/secrets.js';
import type { Collection, Store } from '../storage/collection.js';
import { firstPagesOf } from '../storage/pages.js';
import { type FailedAttempt, FailureLog } from './failure-log.js';
import { purgeCreatedBefore } from './purge.js';

/** Who did what, when, from where and with what result. Never a secret. */
export interface AuditRecord {
  /** Sorts by time. */
  id: string;
  at: number;
  /** `login.succeeded`, `refresh.reused`, `admin.refused`, … */
  event: string;
  /** The user, principal or client concerned, else the operator who acted; absent where nobody is known. */
  subject?: string;
  ip: string;
  /** One more word on the circumstances, chosen by us or by the operator and never by a client. */
  detail?: string;
  /** In a summary of failed attempts: how many. `ip` is then their address block, or `several`. */
  count?: number;
}

export interface Audit {
  /**
   * Resolves once the record is stored. It never rejects: what it records has happened, and a failed record must
   * not make it look undone. Then the log says what was lost.
   */
  record(entry: Omit<AuditRecord, 'id' | 'at'>): Promise<void>;
  /**
   * Records an attempt that was refused. The first attempts of an address block are recorded like any other event, the
   * others are counted and summarised once an hour, so that clients without credentials cannot fill the store.
   */
  recordFailure(attempt: FailedAttempt): Promise<void>;
}

/** The audit as its owner sees it: what records it, and what looks after its records. */
export interface AuditLog extends Audit {
  /** Records the summaries of failed attempts that are still open. Called when the process stops. */
  close(): Promise<void>;
  /** Removes records that are older than the retention. Returns how many. */
  purge(retentionDays: number, signal: AbortSignal): Promise<number>;
}

/** An audit whose records are found again. */
export interface ListedAudit extends AuditLog {
  /** What concerns a user, principal or client, the newest first, a page at a time. */
  listOf(subject: string): AsyncIterable<AuditRecord[]>;
}

/** The option of both products that says how long audit records are kept. */
export function auditRetentionOption(env: string) {
  return option(Type.Integer({ minimum: 1, maximum: 36_500, default: 365 }), {
    env,
    doc: 'Days after which audit records are deleted.',
  });
}

const MOST_LISTED = 10_000;

/** Begins the identifier of every record. */
const AUDIT = 'aud_';

export interface AuditDependencies {
  clock: Clock;
  random: Random;
  log: Pick<FastifyBaseLogger, 'error'>;
}

/**
 * Without an index: the records of a busy minute are of as many subjects, each with a place of its own in an index, so
 * that it would be more than half of what a sign-in writes to the disk.
 */
export function createAudit(store: Store, deps: AuditDependencies): AuditLog {
  return recordingIn(store.collection<AuditRecord>('audit'), deps);
}

export function createListedAudit(store: Store, deps: AuditDependencies): ListedAudit {
  const records = store.collection<AuditRecord>('audit', { indexes: [['subject', 'id']] });
  return {
    ...recordingIn(records, deps),
    listOf: (subject) => firstPagesOf(records, { where: { subject }, sort: 'id', desc: true }, MOST_LISTED),
  };
}

function recordingIn(records: Collection<AuditRecord>, { clock, random, log }: AuditDependencies): AuditLog {
  const failures = new FailureLog(clock);
  let stopTimer: (() => void) | undefined;

  const record: Audit['record'] = async (entry) => {
    const record = { id: newId(AUDIT, clock, random), at: clock.now(), ...entry };
    await records
      .insert(record)
      .catch((err: unknown) => log.error({ err, record }, 'an audit record could not be written'));
  };

  const recordSummaries = async (force?: boolean): Promise<void> => {
    const due = failures.takeSummaries(force);
    await Promise.all(due.map(record));
  };

  return {
    record,

    async recordFailure(attempt) {
      await recordSummaries();
      if (failures.admits(attempt)) return record(attempt);
      // Started by the first failure that is only counted, so that a quiet process has no timer.
      stopTimer ??= every(clock, MINUTE, () => void recordSummaries());
    },

    async close() {
      stopTimer?.();
      await recordSummaries(true);
    },

    purge: (retentionDays, signal) =>
      purgeCreatedBefore(records, AUDIT, { time: clock.now() - retentionDays * DAY, signal }),
  };
}

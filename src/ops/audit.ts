import type { FastifyBaseLogger } from 'fastify';
import type { Clock } from '../kernel/clock.js';
import { newId, type Random } from '../kernel/secrets.js';
import type { Collection, Store } from '../storage/collection.js';
import { firstOf } from '../storage/pages.js';

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
}

export interface Audit {
  /**
   * Resolves once the record is stored. It never rejects: what it records has happened, and a failed record must
   * not make it look undone. Then the log says what was lost.
   */
  record(entry: Omit<AuditRecord, 'id' | 'at'>): Promise<void>;
}

/** An audit whose records are found again. */
export interface ListedAudit extends Audit {
  /** What concerns a user, principal or client, the newest first. */
  listOf(subject: string): Promise<AuditRecord[]>;
}

const MOST_LISTED = 10_000;

interface Dependencies {
  clock: Clock;
  random: Random;
  log: Pick<FastifyBaseLogger, 'error'>;
}

/**
 * Without an index: the records of a busy minute are of as many subjects, each with a place of its own in an index, so
 * that it would be more than half of what a sign-in writes to the disk.
 */
export function createAudit(store: Store, deps: Dependencies): Audit {
  return recordingIn(store.collection<AuditRecord>('audit'), deps);
}

export function createListedAudit(store: Store, deps: Dependencies): ListedAudit {
  const records = store.collection<AuditRecord>('audit', { indexes: [['subject', 'id']] });
  return {
    ...recordingIn(records, deps),
    listOf: (subject) => firstOf(records, { where: { subject }, sort: 'id', desc: true }, MOST_LISTED),
  };
}

function recordingIn(records: Collection<AuditRecord>, { clock, random, log }: Dependencies): Audit {
  return {
    async record(entry) {
      const record = { id: newId('aud_', clock, random), at: clock.now(), ...entry };
      await records
        .insert(record)
        .catch((err: unknown) => log.error({ err, record }, 'an audit record was lost'));
    },
  };
}

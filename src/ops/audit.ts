import type { FastifyBaseLogger } from 'fastify';
import type { Clock } from '../kernel/clock.js';
import { newId, type Random } from '../kernel/secrets.js';
import type { Store } from '../storage/collection.js';
import { firstOf } from '../storage/pages.js';

/** Who did what, when, from where and with what result. Never a secret. */
export interface AuditRecord {
  /** Sorts by time. */
  id: string;
  at: number;
  /** `login.succeeded`, `refresh.reused`, `admin.refused`, … */
  event: string;
  /** The user, principal or client concerned; absent where nobody is known. */
  subject?: string;
  ip: string;
  /** One more word on the circumstances, chosen by us and never by a client. */
  detail?: string;
}

export interface Audit {
  /**
   * Resolves once the record is stored. It never rejects: what it records has happened, and a failed record must
   * not make it look undone. Then the log says what was lost.
   */
  record(entry: Omit<AuditRecord, 'id' | 'at'>): Promise<void>;
  /** What concerns a user, principal or client, the newest first. */
  listOf(subject: string): Promise<AuditRecord[]>;
}

const MOST_LISTED = 10_000;

export function createAudit(
  store: Store,
  { clock, random, log }: { clock: Clock; random: Random; log: Pick<FastifyBaseLogger, 'error'> },
): Audit {
  const records = store.collection<AuditRecord>('audit', { indexes: [['subject', 'id']] });
  return {
    async record(entry) {
      const record = { id: newId('aud_', clock, random), at: clock.now(), ...entry };
      await records
        .insert(record)
        .catch((err: unknown) => log.error({ err, record }, 'an audit record was lost'));
    },

    listOf: (subject) => firstOf(records, { where: { subject }, sort: 'id', desc: true }, MOST_LISTED),
  };
}

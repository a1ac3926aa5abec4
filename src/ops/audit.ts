import type { Clock } from '../kernel/clock.js';
import { newId, type Random } from '../kernel/secrets.js';
import type { Store } from '../storage/collection.js';

/** Who did what, when, from where and with what result. Never a secret. */
export interface AuditRecord {
  id: string;
  at: number;
  /** `login.succeeded`, `refresh.reused`, `admin.refused`, … */
  event: string;
  /** The user, principal or client concerned; absent where nobody is known. */
  subject?: string;
  ip?: string;
  /** One more word on the circumstances, chosen by us and never by a client. */
  detail?: string;
}

export interface Audit {
  record(entry: Omit<AuditRecord, 'id' | 'at'>): Promise<void>;
}

export function createAudit(store: Store, clock: Clock, random: Random): Audit {
  const records = store.collection<AuditRecord>('audit', { indexes: [['at'], ['subject', 'at']] });
  return {
    record: (entry) => records.insert({ id: newId('aud_', clock, random), at: clock.now(), ...entry }),
  };
}

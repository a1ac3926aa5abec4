import type { FastifyBaseLogger } from 'fastify';
import { type Static, Type } from 'typebox';
import { option } from '../config/options.js';
import type { ActingProgram } from '../http/identity.js';
import { Timestamp, toTimestamp } from '../http/schemas.js';
import { type Clock, DAY, every, MINUTE } from '../kernel/clock.js';
import { idsUntil, newId, type Random } from '../kernel/secrets.js';
import { type Collection, nullIfTaken, type Store, StoreUnavailable } from '../storage/collection.js';
import { firstPagesOf } from '../storage/pages.js';
import { type Effect, effectOf, NO_EFFECT } from './commit.js';
import { type FailedAttempt, FailureLog } from './failure-log.js';
import type { RunReport } from './jobs.js';
import { purgeCreatedBefore } from './purge.js';
import type { UnknownWritesRegistry } from './unknown-writes.js';

/** A security event or a change by the operator. Never contains a secret. A write that changes nothing is not recorded. */
export interface AuditRecord {
  /** Sorts by time; records of one millisecond have no order. */
  id: string;
  at: number;
  /** `login.succeeded`, `refresh.reused`, `admin.refused`, … */
  event: string;
  /**
   * ID of the user, principal, client or API that the record is about, never the operator. Absent if it is unknown, or for a change
   * of something else, whose ID is in `detail`.
   */
  subject?: string;
  /** The operator who made the change. Absent if none did. */
  by?: string;
  /** The agent, application or API key that acted for the person; absent if they acted themselves. */
  actor?: ActingProgram;
  ip: string;
  /** Additional information, chosen by the program or the operator. Only `client.refused` repeats what a client has sent. */
  detail?: string;
  /** The authorization under which an agent acted, whose records have an index. Its detail names it as well. */
  txn?: string;
  /** Number of failed attempts in a summary, whose `ip` is an address block or `several`. */
  count?: number;
}

/** A record in responses and in the output of commands. */
export const AuditView = Type.Object({
  id: Type.String(),
  at: Timestamp,
  event: Type.String(),
  subject: Type.Union([Type.String(), Type.Null()]),
  by: Type.Union([Type.String(), Type.Null()]),
  actor: Type.Optional(
    Type.Object(
      {
        client: Type.Optional(Type.String()),
        sub: Type.Optional(Type.String()),
        delegation: Type.Optional(Type.String()),
        key: Type.Optional(Type.String({ description: 'The ID of an API key.' })),
      },
      { description: 'The agent, application or API key that acted for the person.' },
    ),
  ),
  ip: Type.String(),
  detail: Type.Union([Type.String(), Type.Null()]),
  count: Type.Union([Type.Integer(), Type.Null()]),
});
export type AuditView = Static<typeof AuditView>;

export function toAuditView({ id, at, event, ip, ...record }: AuditRecord): AuditView {
  const { subject = null, by = null, actor, detail = null, count = null } = record;
  return { id, at: toTimestamp(at), event, subject, by, ...(actor && { actor }), ip, detail, count };
}

/** Who has acted: an operator, or a program for the person. */
export function writeActor({ by, actor }: Pick<AuditView, 'by' | 'actor'>): string | null {
  if (!actor) return by;
  const { sub, client, delegation, key } = actor;
  if (key !== undefined) return `key ${key}`;
  const permission = delegation === undefined ? '' : `, ${delegation}`;
  return sub === undefined ? `client ${client}` : `agent ${sub} (client ${client}${permission})`;
}

/** The operator who made a change, and from where. */
export interface Operator {
  /** The user name of the credentials, or the ID of a user with a role. */
  name: string;
  /** The address of the request. */
  ip: string;
}

/** The part of a record that says who made a change of a user, and from where: by default the host or the command line. */
export const auditActor = (operator?: Operator): Pick<AuditRecord, 'by' | 'ip'> =>
  operator ? { by: operator.name, ip: operator.ip } : { ip: 'local' };

/** A record without what the audit adds. */
type Entry = Omit<AuditRecord, 'id' | 'at'>;

type Values = Readonly<Record<string, unknown>>;

/** The detail of a record of a change: what differs, as JSON. `null` stands for a value that is not set. */
export function changeDetail(before: Values, after: Values): string {
  const names = Object.keys({ ...before, ...after }).filter((name) => before[name] !== after[name]);
  const pick = (values: Values) => Object.fromEntries(names.map((name) => [name, values[name] ?? null]));
  return JSON.stringify({ before: pick(before), after: pick(after) });
}

/** Who made a change, for its record. */
export function actorOf({ ip, by }: { ip: string; by?: string | undefined }): Pick<AuditRecord, 'ip' | 'by'> {
  return { ip, ...(by !== undefined && { by }) };
}

/** The audit with its maintenance, for the module context. */
export type AuditLog = ReturnType<typeof recordingIn>;

export type Audit = Pick<AuditLog, 'entry' | 'record' | 'recordFailure' | 'failureEntry'>;

/** An audit whose records can be listed by subject. */
export type ListedAudit = ReturnType<typeof createListedAudit>;

/** The option of both products for the retention of audit records. */
export function auditRetentionOption(env: string) {
  return option(Type.Integer({ minimum: 1, maximum: 36_500, default: 365 }), {
    env,
    doc: 'Days after which audit records are deleted.',
  });
}

const MAX_LISTED = 10_000;

/** Of the IDs of audit records. */
export const AUDIT_ID_PREFIX = 'aud_';

export interface AuditDependencies {
  clock: Clock;
  random: Random;
  log: Pick<FastifyBaseLogger, 'error'>;
  /** Absent: a record that cannot be written at once is given up. */
  unknownWrites?: Pick<UnknownWritesRegistry, 'track'>;
}

/** Without an index of subjects, which would more than double the bytes written per sign-in. */
export const auditCollection = (store: Store): Collection<AuditRecord> =>
  store.collection<AuditRecord>('audit', { sparse: ['txn'] });

export function createAudit(store: Store, deps: AuditDependencies): AuditLog {
  return recordingIn(auditCollection(store), deps);
}

/** The records of an audit that can be listed by subject. */
export const listedAuditCollection = (store: Store): Collection<AuditRecord> =>
  store.collection<AuditRecord>('audit', { indexes: [['subject', 'id']] });

export function createListedAudit(store: Store, deps: AuditDependencies) {
  const records = listedAuditCollection(store);
  return {
    ...recordingIn(records, deps),
    /** The records of a user, principal or client, newest first, in pages. */
    listOf: (subject: string): AsyncIterable<AuditRecord[]> =>
      firstPagesOf(records, { where: { subject }, sort: 'id', desc: true }, MAX_LISTED),
  };
}

const LOSS_MESSAGE = 'audit records were lost';

function recordingIn(
  records: Collection<AuditRecord>,
  { clock, random, log, unknownWrites }: AuditDependencies,
) {
  const failures = new FailureLog(clock);
  let stopTimer: (() => void) | undefined;

  /** A record that is stored already has been written by an earlier attempt. */
  const insert = (record: AuditRecord) => records.insert(record).catch(nullIfTaken);
  const unwritten = unknownWrites?.track<AuditRecord>(
    'audit record',
    async ([record]) => {
      await insert(record as AuditRecord);
      return true;
    },
    LOSS_MESSAGE,
  );

  const create = (entry: Entry): AuditRecord => ({
    id: newId(AUDIT_ID_PREFIX, clock, random),
    at: clock.now(),
    ...entry,
  });

  const record = async (entry: Entry): Promise<void> => {
    const record = create(entry);
    try {
      await insert(record);
    } catch (err) {
      if (unwritten && err instanceof StoreUnavailable) unwritten.retry(record.id, record);
      else log.error({ err, count: 1, lost: [record] }, LOSS_MESSAGE);
    }
  };

  const recordSummaries = async (force?: boolean): Promise<void> => {
    const due = failures.takeSummaries(force);
    await Promise.all(due.map(record));
  };

  /** Whether a failure gets a record of its own. */
  const admits = (attempt: FailedAttempt): boolean => {
    if (failures.admits(attempt)) return true;
    // Started by the first failure without a record of its own, so that a process without failures has no timer.
    stopTimer ??= every(clock, MINUTE, () => void recordSummaries());
    return false;
  };

  const entry = (given: Entry): Effect => effectOf(records.inserting(create(given)));

  return {
    /** The record of a change, for the commit of that change. */
    entry,

    /**
     * Resolves once the record is stored. Never rejects, because the event has happened: while the store does not respond, it
     * resolves earlier and the record is stored later. A record that is lost is logged.
     */
    record,

    /**
     * Records a rejected attempt. The first attempts of an address block are recorded one by one, further ones as an hourly
     * summary, so that unauthenticated clients cannot fill the store.
     */
    async recordFailure(attempt: FailedAttempt): Promise<void> {
      await recordSummaries();
      if (admits(attempt)) await record(attempt);
    },

    /** The same for the commit of what the attempt has changed. */
    failureEntry: (attempt: FailedAttempt): Effect => (admits(attempt) ? entry(attempt) : NO_EFFECT),

    /** Records the open summaries of failed attempts when the process stops. */
    async close(): Promise<void> {
      stopTimer?.();
      await recordSummaries(true);
    },

    /** Deletes records older than the retention. */
    purge: (retentionDays: number, signal: AbortSignal): Promise<RunReport> =>
      purgeCreatedBefore(records, AUDIT_ID_PREFIX, { time: clock.now() - retentionDays * DAY, signal }),

    /** Counts the records that `purge` would delete, up to `limit`. */
    countOutdated: (retentionDays: number, limit: number): Promise<number> =>
      records.count({ id: { lt: idsUntil(AUDIT_ID_PREFIX, clock.now() - retentionDays * DAY) } }, limit),
  };
}

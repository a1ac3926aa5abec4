import { AppError } from '../../../core/kernel/errors.js';
import type { Audit } from '../../../core/ops/audit.js';
import { UniqueViolation } from '../../../core/storage/collection.js';
import { METADATA_KINDS } from '../users/metadata.js';
import { insertUser, type NewUser, type NewUserDependencies, type StoreUser } from '../users/users.js';
import { type Line, readLines } from './import-lines.js';

/** The fields of a line of JSON. */
export type ImportRecord = Record<string, unknown>;

export interface ImportOptions {
  /**
   * Converts a record of another system to one of this format, in which `null` is no value.
   * @returns the reason if it cannot be imported
   */
  convert?(record: ImportRecord): ImportRecord | string;
  /** Report the result without changing anything. */
  dryRun?: boolean;
  /** Called for each rejected line, in order. */
  onRefused?(line: number, reason: string): void;
  /** @param bytes of the input that are processed */
  onProgress?(bytes: number): void;
  /** Ends the import after the current batch. */
  signal?: AbortSignal;
}

export interface ImportReport {
  lines: number;
  created: number;
  /** Addresses that already had an account, which stays unchanged. */
  existing: number;
  refused: number;
  /** Whether the import ended before its input. */
  interrupted: boolean;
}

/** Users inserted at once, which share a commit; no further lines are buffered. */
const BATCH_SIZE = 128;

/** More than twice the maximum of metadata; exports of other systems have more fields. */
const MAX_LINE_BYTES = { own: 32 * 1024, converted: 1024 * 1024 };

const FIELDS = [
  ...['id', 'email', 'name', 'passwordHash', 'emailVerified', 'suspended', 'createdAt', 'customerId'],
  ...METADATA_KINDS,
];

/**
 * Imports users of another system from lines of JSON: `{ email, id?, name?, passwordHash?, emailVerified?, suspended?,
 * createdAt?, customerId?, publicMetadata?, privateMetadata? }`, or from other lines that `convert` reads.
 * Invalid lines are skipped, and existing accounts stay unchanged, so that an import can be repeated.
 *
 * @throws StoreUnavailable; the users imported before remain
 */
export async function importUsers(
  input: AsyncIterable<Uint8Array>,
  { dryRun = false, convert, onRefused, onProgress, signal }: ImportOptions,
  deps: NewUserDependencies & { audit: Audit },
): Promise<ImportReport> {
  const target = dryRun ? { ...deps, storeUser: createDryRun(deps) } : deps;
  const report: ImportReport = { lines: 0, created: 0, existing: 0, refused: 0, interrupted: false };
  let batch: Line[] = [];
  const importBatch = async (bytes: number) => {
    const results = await Promise.all(batch.map(({ text }) => importLine(text, convert, target)));
    for (const [index, result] of results.entries()) {
      report.lines++;
      if (result === 'created' || result === 'existing') report[result]++;
      else {
        report.refused++;
        onRefused?.(batch[index]?.number ?? 0, result.reason);
      }
    }
    batch = [];
    onProgress?.(bytes);
  };
  try {
    const maxBytes = convert ? MAX_LINE_BYTES.converted : MAX_LINE_BYTES.own;
    for await (const line of readLines(input, maxBytes)) {
      if (typeof line.text !== 'string' || line.text.trim() !== '') batch.push(line);
      if (batch.length === BATCH_SIZE) await importBatch(line.bytes);
      if (signal?.aborted) break;
    }
  } catch (error) {
    // An aborted stream ends with an error.
    if (!signal?.aborted) throw error;
  }
  report.interrupted = signal?.aborted === true;
  if (batch.length > 0) await importBatch(Number.POSITIVE_INFINITY);
  if (report.created > 0 && !dryRun) {
    await deps.audit.record({ event: 'users.imported', ip: 'local', detail: `${report.created} new` });
  }
  return report;
}

/** Stores nothing, and detects duplicates as a real import would. */
function createDryRun({ users, customers }: Pick<NewUserDependencies, 'users' | 'customers'>): StoreUser {
  // An ID has no @.
  const imported = new Set<string>();
  const linked = new Set<string>();
  return async ({ id, email }, { customerId }) => {
    const isStored = (await users.findOne({ email })) !== null;
    if (isStored || imported.has(email)) throw new UniqueViolation('users', 'email');
    imported.add(email);
    if (imported.has(id)) throw new UniqueViolation('users', 'id');
    if (customerId !== undefined) {
      const isFree = (await customers.linking(id, customerId)) !== undefined;
      if (!isFree || linked.has(customerId)) throw new UniqueViolation(customers.collection, 'id');
      linked.add(customerId);
    }
    imported.add(id);
  };
}

async function importLine(
  text: Line['text'],
  convert: ImportOptions['convert'],
  deps: NewUserDependencies,
): Promise<'created' | 'existing' | { reason: string }> {
  if (typeof text !== 'string') return text;
  const parsed = parseRecord(text);
  const record = convert && typeof parsed === 'object' ? convert(parsed) : parsed;
  const user = typeof record === 'object' ? toNewUser(record) : record;
  if (typeof user === 'string') return { reason: user };
  try {
    await insertUser(user, deps);
    return 'created';
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    if (error.code === 'EMAIL_TAKEN') return 'existing';
    const [problem] = error.details ?? [];
    return { reason: problem ? `${problem.path} ${problem.message}` : error.message };
  }
}

/** The object of a line, or the reason why there is none. */
function parseRecord(text: string): ImportRecord | string {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return 'is not valid JSON';
  }
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as ImportRecord)
    : 'is not an object';
}

/** `insertUser` validates the values. */
function toNewUser(record: ImportRecord): NewUser | string {
  // Ignoring a misspelt field could silently create an account that cannot sign in.
  const unknownField = Object.keys(record).find((field) => !FIELDS.includes(field));
  if (unknownField !== undefined) return `has an unknown field '${unknownField.slice(0, 40)}'`;
  // Databases export absent values as null.
  const { createdAt, ...rest } = Object.fromEntries(
    Object.entries(record).filter(([, field]) => field !== null),
  );
  return {
    ...rest,
    ...(createdAt !== undefined && { createdAt: parseTime(createdAt) }),
  } as unknown as NewUser;
}

/**
 * Converts ISO 8601 with a time zone to Unix time in milliseconds. Other values stay as they are for the validation.
 */
function parseTime(value: unknown): unknown {
  const isIso =
    typeof value === 'string' && /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/.test(value);
  return isIso ? Date.parse(value) : value;
}

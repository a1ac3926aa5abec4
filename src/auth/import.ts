import { AppError } from '../kernel/errors.js';
import type { Audit } from '../ops/audit.js';
import { type Line, readLines } from './import-lines.js';
import { rehearse } from './import-rehearsal.js';
import { insertUser, type NewUser, type NewUserDependencies } from './new-users.js';
import type { Users } from './store.js';

/** Users of another system, a line of JSON each. */

export interface ImportOptions {
  /** Say what would come of it, and change nothing. */
  dryRun?: boolean;
  /** Called in the order of the lines. */
  onRefused?(line: number, reason: string): void;
  /** @param bytes of the input that are done */
  onProgress?(bytes: number): void;
  /** Ends the import after what has been begun. */
  signal?: AbortSignal;
}

export interface ImportReport {
  lines: number;
  created: number;
  /** Addresses that were there already. They stay as they are. */
  existing: number;
  refused: number;
  /** Whether it ended before its input did. */
  interrupted: boolean;
}

/** As many as share a commit; of the input no line is kept beyond them. */
const BATCH = 128;

const LINE_BYTES = 16 * 1024;

const FIELDS = ['email', 'name', 'passwordHash', 'emailVerified', 'createdAt'];

/**
 * Imports one user for each line `{ email, name?, passwordHash?, emailVerified?, createdAt? }`. A line that cannot be
 * used is refused and the rest goes on; an address that is there already is never touched, so a second run changes
 * nothing.
 *
 * @throws StoreUnavailable; what was imported until then stays
 */
export async function importUsers(
  input: AsyncIterable<Uint8Array>,
  { dryRun = false, onRefused, onProgress, signal }: ImportOptions,
  deps: NewUserDependencies & { users: Users; audit: Audit },
): Promise<ImportReport> {
  const makers = dryRun ? { ...deps, users: rehearse(deps.users), foreignHashes: UNCOUNTED } : deps;
  const report: ImportReport = { lines: 0, created: 0, existing: 0, refused: 0, interrupted: false };
  let batch: Pick<Line, 'number' | 'text'>[] = [];
  const finish = async (bytes: number) => {
    const outcomes = await Promise.all(batch.map(({ text }) => importLine(text, makers)));
    for (const [index, outcome] of outcomes.entries()) {
      report.lines++;
      if (outcome === 'created' || outcome === 'existing') report[outcome]++;
      else {
        report.refused++;
        onRefused?.(batch[index]?.number ?? 0, outcome.reason);
      }
    }
    batch = [];
    onProgress?.(bytes);
  };
  try {
    for await (const { number, text, bytes } of readLines(input, LINE_BYTES)) {
      if (typeof text !== 'string' || text.trim() !== '') batch.push({ number, text });
      if (batch.length === BATCH) await finish(bytes);
      if (signal?.aborted) break;
    }
  } catch (error) {
    // A stream that was told to end ends with an error.
    if (!signal?.aborted) throw error;
  }
  report.interrupted = signal?.aborted === true;
  if (batch.length > 0) await finish(Number.POSITIVE_INFINITY);
  if (report.created > 0 && !dryRun) {
    await deps.audit.record({ event: 'users.imported', ip: 'local', detail: `${report.created} new` });
  }
  return report;
}

/** For users that are not stored. */
const UNCOUNTED: NewUserDependencies['foreignHashes'] = {
  add: async () => undefined,
  remove: async () => undefined,
};

async function importLine(
  text: Line['text'],
  deps: NewUserDependencies,
): Promise<'created' | 'existing' | { reason: string }> {
  if (typeof text !== 'string') return text;
  const user = readUser(text);
  if ('reason' in user) return user;
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

/** The user of a line, whose values are judged later. */
function readUser(text: string): NewUser | { reason: string } {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return { reason: 'is not valid JSON' };
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    return { reason: 'is not an object' };
  // A misspelt field would silently make an account that nobody can sign in to.
  const stray = Object.keys(value).find((field) => !FIELDS.includes(field));
  if (stray !== undefined) return { reason: `has an unknown field '${stray.slice(0, 40)}'` };
  // Databases write null for what is not there.
  const { createdAt, ...rest } = Object.fromEntries(
    Object.entries(value).filter(([, field]) => field !== null),
  );
  return { ...rest, ...(createdAt !== undefined && { createdAt: readTime(createdAt) }) } as NewUser;
}

/** Epoch milliseconds, or ISO 8601 with its zone; anything else is no time. */
function readTime(value: unknown): unknown {
  const isIso =
    typeof value === 'string' && /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/.test(value);
  return isIso ? Date.parse(value) : value;
}

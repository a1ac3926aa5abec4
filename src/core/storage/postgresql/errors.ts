/** Classifies errors of PostgreSQL and its driver: repeat, report to the operator, or rethrow. */
import { ForeignKeyViolation, RefusedDocument, StoreUnavailable, UniqueViolation } from '../collection.js';

/** What PostgreSQL reports; other errors come from the connection. */
interface ServerError extends Error {
  /** https://www.postgresql.org/docs/current/errcodes-appendix.html */
  code: string;
  constraint?: string;
}

const INVALID_TEXT = '22P02';
const UNIQUE_VIOLATION = '23505';
/** Of a key with `ON DELETE RESTRICT`: the other one before PostgreSQL 18. */
const KEY_VIOLATIONS = new Set(['23503', '23001']);
const READ_ONLY = '25006';
const QUERY_CANCELED = '57014';
const STARTING_UP = '57P03';

/** Transactions that PostgreSQL has undone because of another one: a deadlock, and a conflict at a stricter isolation. */
const CONFLICTS = new Set(['40P01', '40001']);

/** Errors of the connection whose cause is in the URI, by code and message, and their remedies. */
const URI_REMEDIES: readonly (readonly [problem: RegExp, remedy: string])[] = [
  [/ALTNAME/, 'Use a host name of its certificate in the URI.'],
  [/CERT|SIGNATURE|OSSL/, 'Correct sslrootcert, sslcert and sslkey in the URI.'],
  [/not support SSL/, 'Enable TLS at the server, or remove sslmode from the URI.'],
  [/, open '/, 'Correct the path in the URI.'],
  [/password must be/, 'Correct the user or the password in its URI.'],
];

/** Errors that the statement did not cause, by the beginning of their code, and their remedies. */
const REMEDIES: readonly (readonly [prefix: string, remedy: string])[] = [
  ['08', 'Start it, or correct the host in its URI.'],
  [READ_ONLY, 'Connect to the primary, and check default_transaction_read_only there.'],
  ['28', 'Correct the user, the password or sslmode in its URI, or allow the user in pg_hba.conf.'],
  ['3D000', 'Create the database, or correct its name in the URI.'],
  ['42501', 'Grant the user of the URI access to the schema and its tables.'],
  ['53100', 'Free up disk space.'],
  ['53300', 'Raise max_connections, or lower connection_limit in the URI.'],
  ['53', 'Give the server more resources.'],
  ['55P03', 'End the transaction that holds the lock.'],
  [QUERY_CANCELED, 'Find the query or the lock that takes so long.'],
  ['57', 'Start it.'],
  ['58', 'Check its log and its disk.'],
  ['XX', 'Check its log and its disk.'],
];

/** After these, the connection can be used again. */
const STATEMENT_ERRORS = /^(?:0A|22|23|40|42|54|55|57014)/;

/** Begins the text whose conversion to a number fails, so that a statement ends its transaction. */
export const UNMET = 'no match in';
export const UNCOUNTABLE = 'cannot increment';

export function isServerError(error: unknown): error is ServerError {
  const { code, severity } = (error ?? {}) as { code?: unknown; severity?: unknown };
  return typeof severity === 'string' && typeof code === 'string';
}

/** Whether the connection is of no more use after this error. */
export function breaksConnection(error: unknown): boolean {
  return !isServerError(error) || !STATEMENT_ERRORS.test(error.code);
}

/** The transaction was undone because no document matched a write. */
export class Unmet extends Error {
  /** The place of its statement in the call. */
  readonly index: number;

  constructor(index: number) {
    super('no document matches a write');
    this.index = index;
  }
}

/** Whether a statement of `expectingOne` has matched nothing. */
export function isUnmet(error: unknown): boolean {
  return isServerError(error) && error.code === INVALID_TEXT && error.message.includes(UNMET);
}

/** Whether the server is starting, or a standby that may become the primary. */
export function isStarting(error: unknown): boolean {
  const { cause } = error as Error;
  return error instanceof Standby || (isServerError(cause) && cause.code === STARTING_UP);
}

/** The server is a standby, whose documents may be older. */
export class Standby extends StoreUnavailable {
  constructor() {
    super('PostgreSQL: the server is a standby', {
      remedy: 'Use an address that leads to the primary.',
    });
  }
}

/**
 * Converts errors that the caller did not cause to StoreUnavailable, and those of documents to the errors of the port.
 *
 * @param mayHaveTakenEffect whether a write was sent
 */
export function toStoreError(error: unknown, mayHaveTakenEffect: boolean): unknown {
  if (!(error instanceof Error) || error instanceof StoreUnavailable) return error;
  const problem = `PostgreSQL: ${error.message}`;
  if (!isServerError(error)) {
    const isSystemError = /^E[A-Z]+$/.test(String((error as NodeJS.ErrnoException).code));
    const remedy = remedyInUri(error) ?? (isSystemError && 'Start it, or correct the host in its URI.');
    return new StoreUnavailable(problem, { cause: error, mayHaveTakenEffect, ...(remedy && { remedy }) });
  }
  const { code, constraint = '' } = error;
  if (code === UNIQUE_VIOLATION) {
    // Without the cause, because its detail contains the value.
    const [, collection, field] = /^(\w+)\.(\w+)(?: unique)?$/.exec(constraint) ?? [];
    return collection && field ? new UniqueViolation(collection, field) : error;
  }
  // Without the cause, because its detail contains the ID.
  if (KEY_VIOLATIONS.has(code)) return new ForeignKeyViolation(problem);
  if (code === INVALID_TEXT) {
    const [, field] = error.message.split(`${UNCOUNTABLE} `);
    const [name] = /^\w+/.exec(field ?? '') ?? [];
    if (name === undefined) return error;
    return new RefusedDocument(`inc: field ${name} is not a number, or its sum is not a safe integer`);
  }
  if (code.startsWith('54')) {
    return new RefusedDocument(`a value is too long for an index of PostgreSQL: ${error.message}`);
  }
  const [, remedy] = REMEDIES.find(([prefix]) => code.startsWith(prefix)) ?? [];
  if (remedy === undefined && !CONFLICTS.has(code)) return error;
  // The server has undone the transaction unless it ends the connection, which may come after a commit.
  const isUnknown = mayHaveTakenEffect && /^(?:08|57P)/.test(code);
  return new StoreUnavailable(problem, {
    cause: error,
    mayHaveTakenEffect: isUnknown,
    ...(remedy && { remedy }),
  });
}

function remedyInUri(error: Error & { code?: string }): string | undefined {
  const [, remedy] = URI_REMEDIES.find(([problem]) => problem.test(`${error.code} ${error.message}`)) ?? [];
  return remedy;
}

/** Whether the same call can succeed later: nothing has taken effect, and an operator has nothing to correct. */
export function isTransient(error: unknown): boolean {
  if (!(error instanceof StoreUnavailable) || error.mayHaveTakenEffect) return false;
  if (error instanceof Standby) return true;
  const { cause } = error;
  if (!(cause instanceof Error)) return false;
  return isServerError(cause)
    ? /^(?:08|25006|40|53300|57P)/.test(cause.code)
    : remedyInUri(cause) === undefined;
}

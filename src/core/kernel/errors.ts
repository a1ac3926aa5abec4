/**
 * Errors as data: a domain has a table of codes, its service throws them, and the error handler of the route renders them as a
 * JSON envelope, an OAuth error or a page. Any other error becomes a fixed 500 without internal details.
 */

export interface ErrorDetail {
  /** The field, as the client wrote it: `email`, `redirect_uris.0`. */
  path: string;
  /** What is wrong with it. */
  message: string;
}

export interface ErrorOptions {
  /** Replaces the sentence of the table. Shown to the client. */
  message?: string;
  /** The name of the sentences on HTML pages (`errors.<page>`), if the code is not specific enough. */
  page?: string;
  details?: ErrorDetail[];
  /** Further members of the error, with which the client continues. */
  members?: Readonly<Record<string, string>>;
  headers?: Record<string, string>;
  /** For the log only. */
  cause?: unknown;
}

/** An error that a client may see. */
export class AppError extends Error {
  /** Stable, for programs: see docs/reference/errors.md. */
  readonly code: string;
  /** Of the response. */
  readonly statusCode: number;
  /** The name of the sentences on HTML pages: `errors.<page>`. */
  readonly page: string;
  /** Whether the message says more than the sentence of the table. */
  readonly isSpecific: boolean;
  /** The fields that are invalid. */
  readonly details: ErrorDetail[] | undefined;
  /** Further members of `error` in the response, with which the client continues. */
  readonly members: Readonly<Record<string, string>> | undefined;
  /** Of the response; names are in lower case. */
  readonly headers: Record<string, string>;

  constructor(code: string, statusCode: number, message: string, options: ErrorOptions = {}) {
    // Expected errors need no stack trace, which under load costs as much as the rest of the response.
    const { stackTraceLimit } = Error;
    if (statusCode < 500 || statusCode === 503) Error.stackTraceLimit = 0;
    super(options.message ?? message, options.cause === undefined ? undefined : { cause: options.cause });
    Error.stackTraceLimit = stackTraceLimit;
    this.name = 'AppError';
    this.code = code;
    this.statusCode = statusCode;
    this.page = options.page ?? code;
    this.isSpecific = options.message !== undefined;
    this.details = options.details;
    this.members = options.members;
    // Every 503 has a Retry-After header.
    this.headers = { ...(statusCode === 503 ? { 'retry-after': '5' } : {}), ...options.headers };
  }
}

/** Code → status and message. The sentences of HTML pages are in the message catalogue. */
export type ErrorTable = Record<string, readonly [status: number, message: string]>;
export type ErrorMakers<T extends ErrorTable> = {
  readonly [Code in keyof T]: (options?: ErrorOptions) => AppError;
};

/** Turns a table into functions that create errors: `throw errors.EMAIL_TAKEN()`. */
export function defineErrors<const T extends ErrorTable>(table: T): ErrorMakers<T> {
  const makers = Object.entries(table).map(([code, [status, message]]) => [
    code,
    (options?: ErrorOptions) => new AppError(code, status, message, options),
  ]);
  return Object.fromEntries(makers);
}

/** Errors that any route may return. */
export const httpErrors = defineErrors({
  VALIDATION_ERROR: [400, 'The request is invalid.'],
  INVALID_JSON: [400, 'The body is not valid JSON.'],
  UNAUTHENTICATED: [401, 'Sign in first.'],
  FORBIDDEN: [403, 'You do not have permission to do this.'],
  NOT_FOUND: [404, 'The requested resource was not found.'],
  METHOD_NOT_ALLOWED: [405, 'This path does not have this method. The Allow header lists its methods.'],
  STILL_REFERENCED: [409, 'It cannot be deleted yet, because other data of this service refers to it.'],
  VERSION_CONFLICT: [409, 'It was changed in the meantime. Reload it and repeat the change.'],
  PAYLOAD_TOO_LARGE: [413, 'The body is too large.'],
  UNSUPPORTED_MEDIA_TYPE: [415, 'The media type or content encoding of the body is not supported.'],
  RATE_LIMITED: [429, 'Too many requests. Try again later.'],
  INTERNAL: [500, 'An unexpected error occurred.'],
  OVERLOADED: [503, 'The server is busy. Try again in a few seconds.'],
  NOT_READY: [503, 'The service is temporarily unavailable. Try again in a few seconds.'],
});

/** A request with invalid fields. */
export const invalidFields = (...details: ErrorDetail[]): AppError =>
  httpErrors.VALIDATION_ERROR({ details });

interface FastifyLikeError {
  name?: string;
  code?: string;
  statusCode?: number;
  status?: number;
  headers?: Record<string, unknown>;
  /** With the messages of `core/http/compilers.ts`. */
  validation?: { instancePath: string; message?: string }[];
  retryAfter?: number;
}

/** Translates errors of the framework and the store; `null` for unknown ones. */
function translate(error: FastifyLikeError): AppError | null {
  if (error.validation) return httpErrors.VALIDATION_ERROR({ details: detailsOf(error.validation) });
  // Thrown by the store, or by a host that sheds load.
  if (statusOf(error) === 503) {
    const headers = { 'retry-after': String(error.retryAfter ?? 5), ...headersOf(error) };
    return httpErrors.NOT_READY({ headers, cause: error });
  }
  // By name, because a host may pass on the error of another copy of this package.
  if (error.name === 'ForeignKeyViolation') return httpErrors.STILL_REFERENCED({ cause: error });
  if (error.code === 'FST_ERR_CTP_BODY_TOO_LARGE') return httpErrors.PAYLOAD_TOO_LARGE();
  if (error.code === 'FST_ERR_CTP_INVALID_MEDIA_TYPE') return httpErrors.UNSUPPORTED_MEDIA_TYPE();
  if (error.code === 'FST_ERR_HANDLER_TIMEOUT') return httpErrors.OVERLOADED({ cause: error });
  if (error.code === 'FST_ERR_NOT_FOUND') return httpErrors.NOT_FOUND();
  // Forbidden keys (`__proto__`) and broken JSON arrive as a SyntaxError with status 400.
  if (error.code === 'FST_ERR_CTP_INVALID_JSON_BODY' || error instanceof SyntaxError) {
    return error.statusCode === 400 ? httpErrors.INVALID_JSON() : null;
  }
  return clientErrorOf(error);
}

/** Client errors of the host and the framework keep their status, but not their message; those of the host are logged. */
function clientErrorOf(error: FastifyLikeError): AppError | null {
  const status = statusOf(error);
  if (status === undefined || status >= 500) return null;
  const options = error.code?.startsWith('FST_ERR_') ? {} : { headers: headersOf(error), cause: error };
  const known = CLIENT_ERRORS[status];
  if (known) return httpErrors[known](options);
  const { code, message } = httpErrors.VALIDATION_ERROR();
  return new AppError(code, status, message, options);
}

/** Reads the same properties as Fastify. */
function statusOf({ statusCode, status }: FastifyLikeError): number | undefined {
  return [statusCode, status].find((number = 0) => number >= 400 && number < 600);
}

/** Only the headers about retrying and authentication: others may not fit this response. */
function headersOf({ headers }: FastifyLikeError): Record<string, string> {
  const entries = Object.entries(headers ?? {}).map(
    ([name, value]) => [name.toLowerCase(), String(value)] as const,
  );
  return Object.fromEntries(entries.filter(([name]) => /^(retry-after|www-authenticate)$/.test(name)));
}

const CLIENT_ERRORS: Record<number, keyof typeof httpErrors> = {
  401: 'UNAUTHENTICATED',
  403: 'FORBIDDEN',
  404: 'NOT_FOUND',
  413: 'PAYLOAD_TOO_LARGE',
  415: 'UNSUPPORTED_MEDIA_TYPE',
  429: 'RATE_LIMITED',
};

function detailsOf(problems: NonNullable<FastifyLikeError['validation']>): ErrorDetail[] {
  return problems.slice(0, 20).map(({ instancePath, message = 'is not valid' }) => ({
    path: instancePath.slice(1).replaceAll('/', '.'),
    message,
  }));
}

/** Converts any thrown value to an error that a client may see; unknown errors become `INTERNAL` with their cause. */
export function toAppError(thrown: unknown): AppError {
  if (thrown instanceof AppError) return thrown;
  const known = typeof thrown === 'object' && thrown !== null ? translate(thrown) : null;
  return known ?? httpErrors.INTERNAL({ cause: thrown });
}

/** The body of an error response. */
export interface Rendered {
  type: string;
  body: string;
  headers?: Record<string, string>;
}

/** `{ success: false, message, error: { code, details?, requestId, … } }`, the SaaS envelope. */
export function renderEnvelope(error: AppError, requestId: string): Rendered {
  const { code, details, members, message } = error;
  return {
    type: 'application/json; charset=utf-8',
    body: JSON.stringify({
      success: false,
      message,
      error: { code, ...(details && { details }), ...members, requestId },
    }),
  };
}

/** OAuth error codes for `httpErrors`; the tables of the identity provider use OAuth codes already. */
const OAUTH_CODES: Record<string, string> = {
  VALIDATION_ERROR: 'invalid_request',
  INVALID_JSON: 'invalid_request',
  INTERNAL: 'server_error',
  OVERLOADED: 'temporarily_unavailable',
  NOT_READY: 'temporarily_unavailable',
};

/** `{ error, error_description, details? }` (RFC 6749 §5.2). */
export function renderOAuth(error: AppError): Rendered {
  const code = OAUTH_CODES[error.code] ?? error.code.toLowerCase();
  return {
    type: 'application/json; charset=utf-8',
    body: JSON.stringify({
      error: code,
      error_description: error.message,
      ...(error.details && { details: error.details }),
    }),
  };
}

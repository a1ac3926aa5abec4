/**
 * Errors as data. A domain keeps a table of its codes, its service throws them, and the scope that
 * answers the request renders them: as the JSON envelope, as OAuth, or as a page. Whatever is not in a
 * table is a bug or a broken dependency and leaves as a fixed 500 that says nothing of the inside.
 */

export interface ErrorDetail {
  /** The field, as the client wrote it: `email`, `redirect_uris.0`. */
  path: string;
  message: string;
}

export interface ErrorOptions {
  /** Replaces the sentence of the table. Shown to the client. */
  message?: string;
  /** Replaces the title of the table on HTML pages. */
  title?: string;
  details?: ErrorDetail[];
  headers?: Record<string, string>;
  /** For the log only. */
  cause?: unknown;
}

/** An error that a client may see. */
export class AppError extends Error {
  readonly code: string;
  readonly statusCode: number;
  /** Title of the HTML page, when the status alone does not name the problem. */
  readonly title: string | undefined;
  readonly details: ErrorDetail[] | undefined;
  readonly headers: Record<string, string>;

  constructor(code: string, statusCode: number, message: string, options: ErrorOptions = {}) {
    // Nobody looks at the stack of a refusal, and under a flood it costs as much as the rest of it.
    const { stackTraceLimit } = Error;
    if (statusCode < 500 || statusCode === 503) Error.stackTraceLimit = 0;
    super(options.message ?? message, options.cause === undefined ? undefined : { cause: options.cause });
    Error.stackTraceLimit = stackTraceLimit;
    this.name = 'AppError';
    this.code = code;
    this.statusCode = statusCode;
    this.title = options.title;
    this.details = options.details;
    // A 503 is an invitation to come back, so it always says when.
    this.headers = { ...(statusCode === 503 ? { 'retry-after': '5' } : {}), ...options.headers };
  }
}

/** Code → status, the sentence for people and, where the status does not say enough, the title of the HTML page. */
export type ErrorTable = Record<string, readonly [status: number, message: string, title?: string]>;
export type ErrorMakers<T extends ErrorTable> = {
  readonly [Code in keyof T]: (options?: ErrorOptions) => AppError;
};

/** Turns a table into makers: `throw errors.EMAIL_TAKEN()`. */
export function defineErrors<const T extends ErrorTable>(table: T): ErrorMakers<T> {
  const makers = Object.entries(table).map(([code, [status, message, title]]) => [
    code,
    (options?: ErrorOptions) => new AppError(code, status, message, { ...(title && { title }), ...options }),
  ]);
  return Object.fromEntries(makers);
}

/** What any route may answer. */
export const httpErrors = defineErrors({
  VALIDATION_ERROR: [400, 'The request is invalid.'],
  INVALID_JSON: [400, 'The body is not valid JSON.'],
  UNAUTHENTICATED: [401, 'Sign in first.'],
  FORBIDDEN: [403, 'You do not have permission to do this.'],
  NOT_FOUND: [404, 'The requested resource was not found.'],
  PAYLOAD_TOO_LARGE: [413, 'The body is too large.'],
  UNSUPPORTED_MEDIA_TYPE: [415, 'The media type or content encoding of the body is not supported.'],
  RATE_LIMITED: [429, 'Too many requests. Try again later.'],
  INTERNAL: [500, 'An unexpected error occurred.'],
  OVERLOADED: [503, 'The server is busy. Try again in a few seconds.'],
  NOT_READY: [503, 'The service is temporarily unavailable. Try again in a few seconds.'],
});

interface FastifyLikeError {
  name?: string;
  code?: string;
  statusCode?: number;
  status?: number;
  headers?: Record<string, unknown>;
  /** As our compilers word them. */
  validation?: { instancePath: string; message?: string }[];
  retryAfter?: number;
}

/** Translates what the framework or the store threw; `null` when it is none of the known ones. */
function translate(error: FastifyLikeError): AppError | null {
  if (error.validation) return httpErrors.VALIDATION_ERROR({ details: detailsOf(error.validation) });
  // The store, or a host that sheds load: whoever says 503 means it.
  if (statusOf(error) === 503) {
    const headers = { 'retry-after': String(error.retryAfter ?? 5), ...headersOf(error) };
    return httpErrors.NOT_READY({ headers, cause: error });
  }
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

/** A refusal that a hook of the host or the framework threw keeps its status and loses its words; the host's go to the log. */
function clientErrorOf(error: FastifyLikeError): AppError | null {
  const status = statusOf(error);
  if (status === undefined || status >= 500) return null;
  const options = error.code?.startsWith('FST_ERR_') ? {} : { headers: headersOf(error), cause: error };
  const refusal = REFUSALS[status];
  if (refusal) return httpErrors[refusal](options);
  const { code, message } = httpErrors.VALIDATION_ERROR();
  return new AppError(code, status, message, options);
}

/** Where Fastify looks for it, too. */
function statusOf({ statusCode, status }: FastifyLikeError): number | undefined {
  return [statusCode, status].find((number = 0) => number >= 400 && number < 600);
}

/** When to come back and how to sign in. Whatever else an error carries may be about another answer. */
function headersOf({ headers }: FastifyLikeError): Record<string, string> {
  const entries = Object.entries(headers ?? {}).map(
    ([name, value]) => [name.toLowerCase(), String(value)] as const,
  );
  return Object.fromEntries(entries.filter(([name]) => /^(retry-after|www-authenticate)$/.test(name)));
}

const REFUSALS: Record<number, keyof typeof httpErrors> = {
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

/** Any thrown value as the error a client may see. The unknown becomes `INTERNAL` with the cause kept for the log. */
export function toAppError(thrown: unknown): AppError {
  if (thrown instanceof AppError) return thrown;
  const known = typeof thrown === 'object' && thrown !== null ? translate(thrown) : null;
  return known ?? httpErrors.INTERNAL({ cause: thrown });
}

/** An error as it leaves. */
export interface Rendered {
  type: string;
  body: string;
  headers?: Record<string, string>;
}

/** `{ success: false, message, error: { code, details?, requestId } }`, the SaaS envelope. */
export function renderEnvelope(error: AppError, requestId: string): Rendered {
  const { code, details, message } = error;
  return {
    type: 'application/json; charset=utf-8',
    body: JSON.stringify({
      success: false,
      message,
      error: { code, ...(details && { details }), requestId },
    }),
  };
}

/** How OAuth spells the codes of `httpErrors`; the tables of the identity provider are in OAuth's spelling already. */
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

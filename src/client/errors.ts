import type { ErrorCode } from '../../generated/client/codes.js';

/**
 * The code of an error: one of the API, or one of the client. `NETWORK_ERROR`: no response. `TIMEOUT`: no response in time.
 * `UNEXPECTED_RESPONSE`: a response that is not of the API, for example of a proxy. `CANCELLED`: the person has not completed the
 * sign-in at a provider, or has not used a passkey. `PROVIDER_FAILED`: the provider has not signed the person in.
 */
export type SaasErrorCode = ErrorCode | keyof typeof CLIENT_MESSAGES;

/** An invalid field of a request. */
export interface FieldError {
  /** The name of the field: `email`. */
  path: string;
  /** What is wrong with it, in English. */
  message: string;
}

const CLIENT_MESSAGES = {
  NETWORK_ERROR: 'The server cannot be reached.',
  TIMEOUT: 'The server did not respond in time.',
  UNEXPECTED_RESPONSE: 'The response is not one of the API.',
  CANCELLED: 'The sign-in was cancelled.',
  PROVIDER_FAILED: 'The provider could not sign you in.',
};

/** An error of a request. `code` is stable; messages can change. */
export class SaasError extends Error {
  /** What happened, for code. */
  readonly code: SaasErrorCode;
  /** The status of the response; 0 without a response. */
  readonly status: number;
  /** The invalid fields of the request, with `VALIDATION_ERROR`. */
  readonly fields: readonly FieldError[];
  /** Seconds after which the request may succeed. */
  readonly retryAfter: number | undefined;
  /** Names the request in the log of the server. */
  readonly requestId: string | undefined;
  /** With `SECOND_FACTOR_REQUIRED` and `SECOND_FACTOR_ENROLMENT_REQUIRED`: with what the sign-in continues. */
  readonly challenge: string | undefined;

  constructor(code: SaasErrorCode, status: number, body: ErrorBody = {}, headers?: Headers, cause?: unknown) {
    const known = (CLIENT_MESSAGES as Record<string, string>)[code];
    super(body.message ?? known ?? code, cause === undefined ? undefined : { cause });
    const { details, requestId, challenge } = body.error ?? {};
    const wait = headers?.get('retry-after') ?? null;
    this.name = 'SaasError';
    this.code = code;
    this.status = status;
    this.fields = details ?? [];
    this.retryAfter = wait !== null && Number(wait) >= 0 ? Number(wait) : undefined;
    this.requestId = requestId ?? headers?.get('x-request-id') ?? undefined;
    this.challenge = challenge;
  }

  /** Whether the same request may succeed later: no response, an overloaded or unavailable server, a rate limit. */
  get isTemporary(): boolean {
    return [0, 429, 502, 503, 504].includes(this.status);
  }
}

/** An error of a sign-in that continues with a second factor. */
export type SecondFactorError = SaasError & {
  /** Whether the person has a second factor, or has to set one up first. */
  code: 'SECOND_FACTOR_REQUIRED' | 'SECOND_FACTOR_ENROLMENT_REQUIRED';
  /** For `auth.completeSignIn`, or for `auth.beginRequiredSecondFactor` and `auth.confirmRequiredSecondFactor`. */
  challenge: string;
};

/** Whether a sign-in continues with a second factor. */
export const needsSecondFactor = (error: unknown): error is SecondFactorError =>
  error instanceof SaasError && error.challenge !== undefined;

/** The JSON of an error response. */
export interface ErrorBody {
  message?: string;
  error?: { code?: string; details?: FieldError[]; requestId?: string; challenge?: string };
}

/** Why a request is refused, as an answer of RFC 6750, RFC 9449 or RFC 9470. */

export type ResourceErrorCode =
  | 'missing_token'
  | 'invalid_request'
  | 'invalid_token'
  | 'insufficient_scope'
  | 'insufficient_user_authentication'
  | 'invalid_dpop_proof'
  | 'use_dpop_nonce'
  | 'temporarily_unavailable';

const STATUSES: Record<ResourceErrorCode, number> = {
  missing_token: 401,
  invalid_request: 400,
  invalid_token: 401,
  insufficient_scope: 403,
  insufficient_user_authentication: 401,
  invalid_dpop_proof: 401,
  use_dpop_nonce: 401,
  temporarily_unavailable: 503,
};

/** A refused request, with the status and the headers of its answer. */
export class ResourceError extends Error {
  /** Always this. */
  override readonly name = 'ResourceError';
  /** The error code of the challenge, or `missing_token` and `temporarily_unavailable`. */
  readonly code: ResourceErrorCode;
  /** Of the response. */
  readonly statusCode: number;
  /** `WWW-Authenticate`, and what else belongs to the answer; names are in lower case. */
  readonly headers: Readonly<Record<string, string>>;

  /** What a person would have to approve, which the agent passes on to the provider as it is; absent for other reasons. */
  readonly authorizationDetails?: readonly object[];

  constructor(
    code: ResourceErrorCode,
    message: string,
    headers: Readonly<Record<string, string>> = {},
    {
      cause,
      authorizationDetails,
    }: { cause?: unknown; authorizationDetails?: readonly object[] | undefined } = {},
  ) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
    this.statusCode = STATUSES[code];
    this.headers = headers;
    if (authorizationDetails) this.authorizationDetails = authorizationDetails;
  }

  /** The body of the answer, as in RFC 6749 §5.2. */
  body(): { error: string; error_description: string; authorization_details?: readonly object[] } {
    const error = this.code === 'missing_token' ? 'invalid_token' : this.code;
    const { authorizationDetails: details } = this;
    return { error, error_description: this.message, ...(details && { authorization_details: details }) };
  }
}

/** A quoted string of a challenge (RFC 9110 §5.6.4). RFC 6750 §3 allows printable ASCII only. */
const quoted = (text: string): string =>
  `"${text
    .replace(/[^\x20-\x7e]/g, '?')
    .replaceAll('\\', '\\\\')
    .replaceAll('"', '\\"')}"`;

/** `Bearer realm="x", error="y"` (RFC 9110 §11.6.1). */
export function challengeOf(
  scheme: string,
  parameters: Readonly<Record<string, string | undefined>>,
): string {
  const written = Object.entries(parameters).flatMap(([name, value]) =>
    value === undefined ? [] : [`${name}=${quoted(value)}`],
  );
  return [scheme, written.join(', ')].filter(Boolean).join(' ');
}

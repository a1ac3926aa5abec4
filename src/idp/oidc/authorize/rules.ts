import { type Client, isPublicClient } from '../directory.js';
import { oidcErrors } from '../errors.js';

/** Parameters of an authorization request, each at most once. */
export type Parameters = Readonly<Record<string, string>>;

/** An error response: a code of RFC 6749 §4.1.2.1 or OIDC Core §3.1.2.6, and a description. */
export interface RuleViolation {
  error: string;
  description: string;
  /** Whether the page of the refusal says whom to ask for access. */
  asksOperator?: boolean;
}

/** For clients that ask without a browser: what /authorize would tell the application in a redirect. */
export function errorOf({ error, description }: RuleViolation): Error {
  const known = Object.entries(oidcErrors).find(([code]) => code === error);
  return (known?.[1] ?? oidcErrors.invalid_request)({ message: description });
}

/** Checks a request whose client and redirect URI are valid. */
export type Rule = (request: {
  parameters: Parameters;
  client: Client;
  redirectUri: string;
}) => RuleViolation | null;

const invalid = (description: string): RuleViolation => ({ error: 'invalid_request', description });

const MAX_LENGTHS = Object.entries({ state: 2048, nonce: 512, scope: 1024 });

/** Limits the parameters that are stored or returned. */
const limitLengths: Rule = ({ parameters }) => {
  const long = MAX_LENGTHS.find(([name, max]) => (parameters[name]?.length ?? 0) > max);
  return long ? invalid(`${long[0]} is longer than ${long[1]} characters.`) : null;
};

/** Request objects are not supported, and ignoring a request object would ignore its parameters (OIDC Core §6.1). */
const refuseRequestObjects: Rule = ({ parameters }) => {
  const name = ['request', 'request_uri'].find((candidate) => parameters[candidate] !== undefined);
  return name ? { error: `${name}_not_supported`, description: `${name} is not supported.` } : null;
};

/** Only the code flow: tokens in URLs leak (RFC 9700 §2.1.2). */
const requireCode: Rule = ({ parameters: { response_type: type } }) => {
  if (type === 'code') return null;
  return type
    ? { error: 'unsupported_response_type', description: 'response_type must be code.' }
    : invalid('response_type is missing.');
};

/** How the response is sent (OAuth 2.0 Multiple Response Types §2.1, Form Post Response Mode). */
export const RESPONSE_MODES = ['query', 'form_post'] as const;

const requireKnownMode: Rule = ({ parameters: { response_mode: mode = 'query' }, redirectUri }) => {
  if (!RESPONSE_MODES.some((known) => known === mode))
    return invalid('response_mode must be query or form_post.');
  return mode === 'form_post' && !isWebUri(redirectUri)
    ? invalid('response_mode form_post requires a redirect_uri with http or https.')
    : null;
};

/** Whether a form can be posted to it. */
export const isWebUri = (uri: string): boolean => /^https?:/i.test(uri);

/** S256 only. Public clients must use it, because nothing else binds their code (RFC 7636, RFC 9700 §2.1.1). */
const requirePkce: Rule = ({ parameters, client }) => {
  const { code_challenge: challenge, code_challenge_method: method } = parameters;
  if (challenge === undefined) {
    if (method !== undefined) return invalid('code_challenge is missing.');
    if (isPublicClient(client)) return invalid('Public clients must send a code_challenge.');
    return client.strict || client.profile
      ? invalid('The client must send a code_challenge: its operator requires PKCE.')
      : null;
  }
  if (method !== 'S256') return invalid('code_challenge_method must be S256.');
  return /^[\w-]{43}$/.test(challenge) ? null : invalid('code_challenge must be 43 base64url characters.');
};

/** `none` forbids every page and cannot be combined with other prompts (OIDC Core §3.1.2.1). */
const excludeOtherPrompts: Rule = ({ parameters: { prompt = '' } }) => {
  const asked = prompt.split(' ');
  return asked.includes('none') && asked.length > 1
    ? invalid('prompt=none cannot be combined with other values.')
    : null;
};

/** Maximum age of the authentication in seconds (OIDC Core §3.1.2.1). */
const requireWholeMaxAge: Rule = ({ parameters: { max_age: age = '0' } }) =>
  /^\d{1,10}$/.test(age) ? null : invalid('max_age must be a whole number of seconds.');

/** The thumbprint of the key that the code shall be bound to (RFC 9449 §10). */
const requireThumbprint: Rule = ({ parameters: { dpop_jkt: key } }) =>
  key === undefined || /^[\w-]{43}$/.test(key) ? null : invalid('dpop_jkt must be 43 base64url characters.');

/** Of a client with the profile FAPI 2.0, which reaches the browser with a pushed request only. */
export const NOT_PUSHED = invalid(
  'The client must push its requests (pushed_authorization_request_endpoint): its profile is FAPI 2.0.',
);

/** In this order; the first violation becomes the response. */
export const RULES: readonly Rule[] = [
  limitLengths,
  refuseRequestObjects,
  requireCode,
  requireKnownMode,
  requirePkce,
  excludeOtherPrompts,
  requireWholeMaxAge,
  requireThumbprint,
];

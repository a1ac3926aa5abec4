import { SCOPES } from '../claims.js';
import { oidcErrors } from '../errors.js';
import type { ReadHint } from '../hints.js';
import type { Client, Directory } from '../model.js';
import { matchesRedirectUri } from './redirect-uri.js';
import type { Parameters, RuleViolation } from './rule.js';
import { RULES } from './rules/index.js';

/** An authorization request in which nothing is wrong. */
export interface AuthorizationRequest {
  parameters: Parameters;
  client: Client;
  redirectUri: string;
  /** What is granted: the known scopes of those asked for, separated by spaces. */
  scope: string;
  /** Whom the client means by its `id_token_hint`: nobody else may be the answer. */
  hintedSub?: string;
}

/** What may be answered to an application only by way of the browser. */
export interface Refusal {
  redirectUri: string;
  parameters: Parameters;
  violation: RuleViolation;
}

export type Judgement = { request: AuthorizationRequest } | { refusal: Refusal };

const FOREIGN_HINT: RuleViolation = {
  error: 'invalid_request',
  description: 'id_token_hint is not an id_token issued by this provider.',
};

/**
 * Judges an authorization request (OIDC Core §3.1.2.2). What is wrong before the redirect URI is known to be the
 * client's own is answered to whoever asks and never redirected.
 *
 * @throws invalid_request
 */
export async function judgeRequest(
  parameters: Parameters,
  { directory, readHint }: { directory: Pick<Directory, 'findClient'>; readHint: ReadHint },
): Promise<Judgement> {
  const { client_id: clientId, redirect_uri: redirectUri, scope, id_token_hint: idToken } = parameters;
  const client = clientId ? await directory.findClient(clientId) : null;
  if (!client)
    throw oidcErrors.invalid_request({
      message: 'client_id is not registered.',
      title: 'Unknown application',
    });
  if (!redirectUri || !matchesRedirectUri(client, redirectUri)) {
    throw oidcErrors.invalid_request({
      message: 'redirect_uri is not registered for this client.',
      title: 'Unknown redirect URI',
    });
  }
  for (const rule of RULES) {
    const violation = rule({ parameters, client });
    if (violation) return { refusal: { redirectUri, parameters, violation } };
  }
  const request = { parameters, client, redirectUri, scope: grantedScope(scope) };
  if (idToken === undefined) return { request };
  const hint = await readHint(idToken);
  if (!hint) return { refusal: { redirectUri, parameters, violation: FOREIGN_HINT } };
  return { request: { ...request, hintedSub: hint.sub } };
}

/** Unknown scopes are ignored, and who names none besides means to sign in: no scope is empty (RFC 6749 §3.3). */
function grantedScope(scope = ''): string {
  const asked = new Set(scope.split(' '));
  return SCOPES.filter((known) => asked.has(known)).join(' ') || 'openid';
}

/** What means something here. Everything else is ignored (RFC 6749 §3.1) and never stored. */
const KNOWN = new Set([
  ...['client_id', 'redirect_uri', 'response_type', 'response_mode', 'scope', 'state', 'nonce'],
  ...[
    'code_challenge',
    'code_challenge_method',
    'prompt',
    'max_age',
    'id_token_hint',
    'login_hint',
    'acr_values',
    'request',
    'request_uri',
  ],
]);

export const isParameter = (name: string): boolean => KNOWN.has(name);

/** What came with a value; the rest counts as omitted. @throws invalid_request when a parameter comes twice (RFC 6749 §3.1) */
export function readParameters(search: URLSearchParams): Parameters {
  // What is ignored is so however often it comes: `resource` may (RFC 8707 §2).
  const seen = new Set<string>();
  const parameters: Record<string, string> = {};
  for (const [name, value] of search) {
    if (!isParameter(name)) continue;
    if (seen.has(name)) {
      const details = [{ path: name, message: 'must not appear more than once' }];
      throw oidcErrors.invalid_request({ details });
    }
    seen.add(name);
    if (value !== '') parameters[name] = value;
  }
  return parameters;
}

import { decodeJwt } from 'jose';
import { findRefusal } from '../admission.js';
import type { Approvals } from '../approvals/service.js';
import { groupsFor, SCOPES, SCOPES_WITHOUT_GROUPS } from '../claims.js';
import { type DelegationRequest, findDelegationRequest } from '../delegations/request.js';
import type { Client } from '../directory.js';
import { oidcErrors } from '../errors.js';
import { findTargets, namesIn, type Target } from '../resources.js';
import type { OidcShared } from '../shared.js';
import type { AuthorizationDetail } from '../store.js';
import type { FormChoice, PushedRequest } from './pushed-request.js';
import { matchesRedirectUri } from './redirect-uri.js';
import { type Parameters, RULES, type RuleViolation } from './rules.js';

/** A valid authorization request. */
export interface AuthorizationRequest {
  parameters: Parameters;
  client: Client;
  redirectUri: string;
  /** The granted scope: the supported values of the requested scope, separated by spaces. */
  scope: string;
  /** The resources that it names, with their scopes. */
  targets: readonly Target[];
  /** Present if the person shall let an agent act for them: nothing else is granted then. */
  delegation?: DelegationRequest;
  /** Present if the person shall approve one action (RFC 9396): nothing else is granted then. */
  details?: AuthorizationDetail;
  /** The user named by `id_token_hint`: no other principal may be authorized. */
  hintedSub?: string;
  /** Present if the client has pushed the request. */
  pushed?: PushedRequest;
}

/** An error response, which is sent to the application by redirecting the browser. */
export interface ErrorResponse {
  client: Client;
  redirectUri: string;
  parameters: Parameters;
  violation: RuleViolation;
}

export type ValidationResult = { request: AuthorizationRequest } | { error: ErrorResponse };

const FOREIGN_HINT: RuleViolation = {
  error: 'invalid_request',
  description: 'id_token_hint is not an id_token issued by this provider.',
};

/**
 * Validates an authorization request (OIDC Core §3.1.2.2). Until the redirect URI is known to be registered, errors are
 * shown to the user and never redirected.
 *
 * @throws invalid_request
 */
export async function validateAuthorizationRequest(
  parameters: Parameters,
  find: (clientId: string) => Promise<Client | { problem: string } | null>,
  deps: OidcShared & { approvals: Approvals | undefined },
): Promise<ValidationResult> {
  const { client_id: clientId, redirect_uri: redirectUri, scope, id_token_hint: idToken } = parameters;
  const client = clientId ? await find(clientId) : null;
  if (!client)
    throw oidcErrors.invalid_request({
      message: clientId ? 'client_id is not registered.' : 'client_id is missing.',
      page: 'unknown-client',
    });
  if ('problem' in client)
    throw oidcErrors.invalid_request({ message: client.problem, page: 'client-metadata' });
  if (!redirectUri) throw oidcErrors.invalid_request({ message: 'redirect_uri is missing.' });
  if (!matchesRedirectUri(client, redirectUri)) {
    throw oidcErrors.invalid_request({
      message: 'redirect_uri is not registered for this client.',
      page: 'unknown-redirect-uri',
    });
  }
  for (const rule of RULES) {
    const violation = rule({ parameters, client, redirectUri });
    if (violation)
      return { error: { client, redirectUri, parameters: withModeOfObject(parameters), violation } };
  }
  const targets = await findTargets(namesIn(parameters['resource']), scope, deps.resources);
  if ('error' in targets) return { error: { client, redirectUri, parameters, violation: targets } };
  const offered = await offeredScopes(client, deps.groups);
  const shared = {
    parameters,
    client,
    redirectUri,
    scope: grantedScope(scope, targets, offered, client),
    targets,
  };
  const asked =
    (await readApproval(parameters, client, deps)) ??
    (await readDelegation(parameters, targets, client, deps));
  if (asked && 'error' in asked) return { error: { client, redirectUri, parameters, violation: asked } };
  const request = asked ? { ...shared, scope: '', ...asked } : shared;
  if (idToken === undefined) return { request };
  const hint = await deps.readHint(idToken);
  if (!hint) return { error: { client, redirectUri, parameters, violation: FOREIGN_HINT } };
  return { request: { ...request, hintedSub: hint.sub } };
}

/** As `resource`, the parameter is ignored while there is no resource. A client that is an agent asks for nothing else. */
async function readDelegation(
  parameters: Parameters,
  targets: readonly Target[],
  client: Client,
  { directory, resources }: OidcShared,
): Promise<Pick<AuthorizationRequest, 'targets' | 'delegation'> | RuleViolation | null> {
  const isAsked = parameters['requested_actor'] !== undefined && (await resources.hasAny());
  if (!isAsked && !client.agent) return null;
  const delegation = await findDelegationRequest(parameters, targets, client, directory);
  return 'error' in delegation ? delegation : { targets: [delegation.target], delegation };
}

/** What a person shall approve once. Without the option, the parameter is ignored (RFC 9396 §5). */
async function readApproval(
  parameters: Parameters,
  { agent }: Client,
  { approvals }: { approvals: Approvals | undefined },
): Promise<Pick<AuthorizationRequest, 'targets' | 'details'> | RuleViolation | null> {
  if (!approvals || parameters['authorization_details'] === undefined) return null;
  if (parameters['requested_actor'] !== undefined)
    return {
      error: 'invalid_request',
      description: 'Send either authorization_details or requested_actor.',
    };
  const asked = await approvals.readTarget(parameters, namesIn(parameters['resource']));
  if ('error' in asked) return asked;
  const targets = [asked.target];
  const refusal = agent && findRefusal({ targets, isDelegated: true }, agent);
  return refusal
    ? { error: 'access_denied', description: refusal.description }
    : { targets, ...(asked.details && { details: asked.details }) };
}

/**
 * An application that puts its parameters into a request object, which is refused, awaits the error in the response mode
 * that the object names. Nothing else of it is read.
 */
function withModeOfObject(parameters: Parameters): Parameters {
  const { request, response_mode: mode } = parameters;
  if (request === undefined || mode !== undefined) return parameters;
  try {
    const { response_mode: named } = decodeJwt(request);
    return named === 'form_post' ? { ...parameters, response_mode: named } : parameters;
  } catch {
    // It is no JWT, and is refused anyway.
    return parameters;
  }
}

/** The scopes that a client can get: `groups` only if there is one, and the client sees it. */
export const offeredScopes = async (
  client: Client,
  groups: OidcShared['groups'],
): Promise<readonly string[]> =>
  groupsFor(client) !== 'none' && (await groups.inUse()) ? SCOPES : SCOPES_WITHOUT_GROUPS;

/**
 * The supported scopes of the provider itself. The default is `openid`, because a scope must not be empty (RFC 6749 §3.3); a
 * request for scopes of resources needs none. A client that has stated that it refreshes tokens gets `offline_access`.
 */
export function grantedScope(
  scope = '',
  targets: readonly Target[],
  offered: readonly string[],
  { refreshes }: Pick<Client, 'refreshes'>,
): string {
  const requested = new Set(scope.split(' '));
  const own = offered.filter((known) => requested.has(known)).join(' ');
  const granted = own || (targets.some(({ scopes }) => scopes.length > 0) ? '' : 'openid');
  if (!refreshes || requested.has('offline_access')) return granted;
  return [granted, 'offline_access'].filter(Boolean).join(' ');
}

/** Supported parameters. Others are ignored (RFC 6749 §3.1) and never stored. */
const SUPPORTED = new Set([
  ...['client_id', 'redirect_uri', 'response_type', 'response_mode', 'scope', 'state', 'nonce'],
  ...['code_challenge', 'code_challenge_method', 'prompt', 'max_age', 'id_token_hint', 'login_hint'],
  ...['acr_values', 'request', 'request_uri', 'ui_locales', 'resource', 'dpop_jkt'],
  ...['requested_actor', 'delegation_expires_in', 'delegation_max_depth', 'authorization_details'],
]);

/** The supported parameters of a form, as a query. */
export function parametersIn(form: Readonly<Record<string, string | string[]>>): URLSearchParams {
  const pairs = Object.entries(form).flatMap(([name, values]) =>
    SUPPORTED.has(name) ? [values].flat().map((value): [string, string] => [name, value]) : [],
  );
  return new URLSearchParams(pairs);
}

/**
 * The supported parameters with a value; empty ones count as omitted. The values of `resource`, which may be repeated (RFC
 * 8707 §2), are separated by spaces: `toSearch` is the reverse.
 *
 * @throws invalid_request for another one that is repeated (RFC 6749 §3.1)
 */
export function readParameters(search: URLSearchParams): Parameters {
  const seen = new Set<string>();
  const parameters: Record<string, string> = {};
  for (const [name, value] of search) {
    if (!SUPPORTED.has(name) || name === 'resource') continue;
    if (seen.has(name)) {
      const details = [{ path: name, message: 'must not appear more than once' }];
      throw oidcErrors.invalid_request({ details });
    }
    seen.add(name);
    if (value !== '') parameters[name] = value;
  }
  // No identifier contains a space or a percent sign, so an encoded one remains unknown.
  const resources = search.getAll('resource').map((value) => value.replaceAll(/\s/g, encodeURIComponent));
  const resource = resources.filter((value) => value !== '').join(' ');
  return resource === '' ? parameters : { ...parameters, resource };
}

/**
 * The query of a link that opens a request again, with the form that the person chooses. Nothing of a pushed request is in it
 * but its name.
 */
export function searchOf(
  { parameters, pushed }: Pick<AuthorizationRequest, 'parameters' | 'pushed'>,
  { page, ...changed }: { page?: FormChoice; prompt?: string | undefined; max_age?: string | undefined },
): URLSearchParams {
  if (pushed) {
    const { client_id: clientId = '' } = parameters;
    return new URLSearchParams({
      client_id: clientId,
      request_uri: pushed.requestUri,
      ...(page && { page }),
    });
  }
  const all = Object.entries({ ...parameters, ...changed });
  return toSearch(Object.fromEntries(all.filter((pair): pair is [string, string] => pair[1] !== undefined)));
}

/** The query that `readParameters` reads as these parameters. */
export function toSearch({ resource, ...others }: Parameters): URLSearchParams {
  const search = new URLSearchParams(others);
  for (const identifier of namesIn(resource)) search.append('resource', identifier);
  return search;
}

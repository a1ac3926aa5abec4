import { SECOND } from '../../../core/kernel/clock.js';
import { findRefusal } from '../admission.js';
import type { Principal } from '../directory.js';
import { oidcErrors } from '../errors.js';
import { APPROVED_LIFETIME_MS, TOKEN_LIFETIME_SECONDS } from '../grant-tokens.js';
import type { Target } from '../resources.js';
import type { OidcShared } from '../shared.js';
import { actorOf, type GrantDocument } from '../store.js';
import { permittedTarget } from './permit.js';

const refuse = (message: string) => oidcErrors.invalid_target({ message });

/**
 * The audience of the access token that a request to /token gets (RFC 8707 §2.2); `null` for an opaque token. The resource
 * and its scopes are read again, because the operator may have changed them.
 *
 * @throws invalid_target
 */
export async function chooseTarget(
  {
    resources: granted = [],
    delegation,
    approval,
  }: Pick<GrantDocument, 'resources' | 'delegation' | 'approval'>,
  named: readonly string[],
  principal: Principal,
  ip: string,
  deps: OidcShared,
): Promise<Target | null> {
  const { resources, directory } = deps;
  if (granted.length === 0) {
    // As at /authorize, the parameter is ignored while there is no resource.
    if (named.length === 0 || !(await resources.hasAny())) return null;
    throw refuse('The resource was not authorized.');
  }
  if (named.length > 1) throw refuse('An access token has one audience. Send one resource.');
  if (named.length === 0 && granted.length > 1)
    throw refuse('Several resources were authorized. Send the one that the access token is for.');
  const [identifier = granted[0]?.resource ?? ''] = named;
  const resource = await resources.find(identifier);
  const grantedThere = granted.find((one) => one.resource === (resource?.identifier ?? identifier));
  if (!grantedThere) throw refuse('The resource was not authorized.');
  if (!resource) throw refuse('The resource is not registered any more.');
  const actor = actorOf({ ...(delegation && { delegation }), ...(approval && { approval }) });
  const agent = actor && (await directory.findPrincipal(actor.agent));
  const refusal = principal.kind === 'human' && findRefusal({ targets: [{ resource }] }, principal);
  if (refusal) throw refuse(refusal.description);
  const isOffered = (scope: string) => resource.scopes.some(({ name }) => name === scope);
  const target: Target = {
    resource,
    scopes: grantedThere.scopes.filter(isOffered),
    ...(delegation && { until: delegation.expiresAt }),
    ...(approval && { until: deps.clock.now() + APPROVED_LIFETIME_MS }),
  };
  if (agent) return permittedTarget(agent, target, { ip, isDelegated: true }, deps);
  return principal.kind === 'agent' ? permittedTarget(principal, target, { ip }, deps) : target;
}

/** Seconds for which an access token is valid: one for a resource no longer than the permission and the delegation that it is for. */
export function lifetimeFor(target: Target | null, now: number): number {
  if (!target) return TOKEN_LIFETIME_SECONDS;
  const { resource, until = Number.POSITIVE_INFINITY } = target;
  return Math.min(resource.tokenLifetimeSeconds, Math.floor((until - now) / SECOND));
}

/** The scope of everything that a response contains: that of the grant, and that of the access token. */
export const scopeWith = (scope: string, target: Target | null): string =>
  [scope, ...(target?.scopes ?? [])].filter((name) => name !== '').join(' ');

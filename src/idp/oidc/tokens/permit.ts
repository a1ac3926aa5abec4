import { HOUR } from '../../../core/kernel/clock.js';
import { fixedWindow } from '../../../core/throttle/throttle.js';
import { noPermission, permitOf } from '../admission.js';
import type { Principal } from '../directory.js';
import { oidcErrors } from '../errors.js';
import type { Circumstances } from '../permits.js';
import type { Target } from '../resources.js';
import type { OidcShared } from '../shared.js';

/**
 * What an access token of an agent may contain: the part of the target that the agent has a permission for. It counts towards the
 * number of tokens that the agent gets in an hour.
 *
 * @throws invalid_target without a permission, RATE_LIMITED
 */
export async function permittedTarget(
  agent: Principal,
  { resource, scopes, until: end = Number.POSITIVE_INFINITY }: Target,
  { ip, isDelegated }: Circumstances & { ip: string },
  { throttle, directory }: Pick<OidcShared, 'throttle' | 'directory'>,
): Promise<Target> {
  const permit = permitOf(agent, resource, { ip, isDelegated });
  if (!permit) throw oidcErrors.invalid_target({ message: noPermission(resource) });
  const permitted = scopes.filter((name) => permit.scopes.has(name));
  const isUnlimited = permit.permissions.some(
    (one) => one.tokensPerHour === undefined && permitted.every((name) => one.scopes.includes(name)),
  );
  if (!isUnlimited)
    for (const { id: permission, tokensPerHour: most } of permit.permissions)
      if (most !== undefined)
        await throttle.countKey(fixedWindow('agent-tokens', most, HOUR), `${agent.id} ${permission}`, ip);
  directory.recordAgentUse(agent);
  const until = Math.min(end, permit.until ?? Number.POSITIVE_INFINITY);
  return { resource, scopes: permitted, ...(until !== Number.POSITIVE_INFINITY && { until }) };
}

import { BlockList, isIP } from 'node:net';
import { familyOf } from '../../core/kernel/addresses.js';
import type { HeldPermission } from '../permissions/service.js';

/** What permissions allow in a given request. */

/** A permission as an agent has it. */
export type Permission = Pick<
  HeldPermission,
  'id' | 'resourceId' | 'scopes' | 'until' | 'networks' | 'tokensPerHour' | 'delegatedOnly' | 'isForEveryone'
>;

export interface Circumstances {
  /** Of the request for a token; absent while there is none yet. */
  ip?: string | undefined;
  /** Whether the agent acts for a person. */
  isDelegated?: boolean | undefined;
}

/** What an agent may do at a resource. */
export interface Permit {
  scopes: ReadonlySet<string>;
  /** When the first of the permissions ends; absent for never. */
  until?: number;
  permissions: readonly Permission[];
}

/** @param id of the resource @param permissions of the agent, without those that have ended @returns `null` if none of them applies */
export function permitAt(
  { id }: { id: string },
  permissions: readonly Permission[],
  { ip, isDelegated = false }: Circumstances,
): Permit | null {
  const found = permissions.filter(
    (one) =>
      one.resourceId === id &&
      (isDelegated || !one.delegatedOnly) &&
      (ip === undefined || !one.networks || one.networks.some((network) => contains(network, ip))),
  );
  if (found.length === 0) return null;
  const ends = found.map(({ until = Number.POSITIVE_INFINITY }) => until);
  const until = Math.min(...ends);
  return {
    scopes: new Set(found.flatMap(({ scopes }) => scopes)),
    ...(until !== Number.POSITIVE_INFINITY && { until }),
    permissions: found,
  };
}

/** @param network in CIDR notation */
function contains(network: string, ip: string): boolean {
  const [address = '', length = ''] = network.split('/');
  const list = new BlockList();
  list.addSubnet(address, Number(length), familyOf(address));
  return isIP(ip) !== 0 && list.check(ip, familyOf(ip));
}

import { BlockList, isIP } from 'node:net';
import { familyOf } from '../../core/kernel/addresses.js';
import type { PermissionDocument } from './store.js';

/** What permissions allow in a given request. */

export type Permission = Pick<
  PermissionDocument,
  'id' | 'subject' | 'resourceId' | 'scopes' | 'until' | 'networks' | 'tokensPerHour' | 'delegatedOnly'
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

/** @param network as `readNetwork` returns it */
function contains(network: string, ip: string): boolean {
  const [address = '', length = ''] = network.split('/');
  const list = new BlockList();
  list.addSubnet(address, Number(length), familyOf(address));
  return isIP(ip) !== 0 && list.check(ip, familyOf(ip));
}

/** A network, or one address, in CIDR notation; `null` for other text. */
export function readNetwork(text: string): string | null {
  const [, address = '', length] = /^([\da-f.:]+)(?:\/(\d{1,3}))?$/i.exec(text) ?? [];
  const family = isIP(address);
  const bits = family === 4 ? 32 : 128;
  if (family === 0 || Number(length ?? bits) > bits) return null;
  return `${address}/${length ?? bits}`;
}

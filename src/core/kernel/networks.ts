import { BlockList, isIP } from 'node:net';
import { familyOf, groupsOf, PRIVATE_NETWORKS } from './addresses.js';

/** Networks in CIDR notation, as in lists of trusted proxies. */

/** First and last address. IPv4 addresses are mapped to IPv6 (`::ffff:0:0/96`), as in Fastify. */
type Range = readonly [first: bigint, last: bigint];

const BITS = 128n;
const MAPPED_BITS = 96;

/** Whether a text is an IP address or a CIDR range. */
export function isNetwork(text: string): boolean {
  const [address = '', length, ...rest] = text.split('/');
  if (isIP(address) === 0 || rest.length > 0) return false;
  if (length === undefined) return true;
  try {
    new BlockList().addSubnet(address, /^\d{1,3}$/.test(length) ? Number(length) : -1, familyOf(address));
    return true;
  } catch {
    return false;
  }
}

/**
 * Whether networks together cover every public IPv4 address or every public IPv6 address. Gaps in private networks are
 * ignored, because public clients have no address there.
 */
export function coverAllPublicAddresses(networks: readonly string[]): boolean {
  const ranges = [...networks, ...PRIVATE_NETWORKS.map(([address, length]) => `${address}/${length}`)]
    .map(rangeOf)
    .sort(([left], [right]) => (left < right ? -1 : 1));
  return PUBLIC.some((target) => isCovered(target, ranges));
}

function isCovered([first, last]: Range, sorted: readonly Range[]): boolean {
  let open = first;
  for (const [from, to] of sorted) {
    if (from > open) break;
    if (to >= open) open = to + 1n;
  }
  return open > last;
}

/** Whether a normalized address is in one of the networks; false for a client without an address. */
export function isInNetworks(address: string, networks: readonly string[]): boolean {
  if (isIP(address) === 0) return false;
  const [value] = rangeOf(address);
  return networks.map(rangeOf).some(([first, last]) => first <= value && value <= last);
}

/** @param network a network that {@link isNetwork} accepts */
function rangeOf(network: string): Range {
  const [address = '', length] = network.split('/');
  const isIpv4 = familyOf(address) === 'ipv4';
  const groups = groupsOf(isIpv4 ? `::ffff:${address}` : address);
  const value = groups.reduce((sum, group) => (sum << 16n) | BigInt(group), 0n);
  const prefix = length === undefined ? BITS : BigInt(Number(length) + (isIpv4 ? MAPPED_BITS : 0));
  const size = 1n << (BITS - prefix);
  const first = value - (value % size);
  return [first, first + size - 1n];
}

/** Globally routed unicast addresses: IPv4 from 1.0.0.0 to 223.255.255.255, and 2000::/3. */
const PUBLIC: readonly Range[] = [
  [rangeOf('1.0.0.0')[0], rangeOf('223.255.255.255')[1]],
  rangeOf('2000::/3'),
];

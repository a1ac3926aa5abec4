import { BlockList, isIP } from 'node:net';

/** Client addresses as the audit records them and rate limits count them. */

/** Stands for connections without a valid address, such as a Unix socket; all of them share one bucket. */
export const UNKNOWN_ADDRESS = 'unknown';

/** Stands for the users of a server-side caller that passes no address of theirs; exempt from limits per address. */
export const EXEMPT_CALLER = 'caller';

/** An IPv4 address inside an IPv6 one (RFC 4291 §2.5.5.2). */
const MAPPED = '0:0:0:0:0:ffff:';

/**
 * The block under which an address is counted: an IPv4 address itself, or the /64 of an IPv6 address, in which one
 * customer can choose any address. `2001:db8:0:1::/64`, `203.0.113.7`, `unknown`.
 */
export function addressBlock(address: string | undefined): string {
  const family = isIP(address ?? '');
  if (family === 4) return address as string;
  if (family === 0) return UNKNOWN_ADDRESS;
  const groups = groupsOf(address as string);
  const text = groups.map((group) => group.toString(16)).join(':');
  if (text.startsWith(MAPPED)) {
    return groups
      .slice(6)
      .flatMap((group) => [group >> 8, group & 255])
      .join('.');
  }
  return `${text.split(':').slice(0, 4).join(':')}::/64`;
}

/**
 * The /48 of an IPv6 address: the largest network that one customer usually gets, with 65,536 blocks to choose from.
 * `undefined` for an IPv4 address, which is a block of its own.
 */
export function addressNetwork(address: string): string | undefined {
  const block = addressBlock(address);
  return block.endsWith('::/64') ? `${block.split(':').slice(0, 3).join(':')}::/48` : undefined;
}

/**
 * Normalizes an address: removes the port that some proxies append, and unwraps an IPv4-mapped IPv6 address.
 * `203.0.113.7`, `2001:db8::7`, `unknown`.
 */
export function plainAddress(text: string | undefined): string {
  if (isIP(text ?? '') === 4) return text as string;
  const [, withPort, bracketed] = /^(?:([\d.]+):\d+|\[([^\]]+)\](?::\d+)?)$/.exec(text ?? '') ?? [];
  const address = withPort ?? bracketed ?? text ?? '';
  const mapped = /^::ffff:([\d.]+)$/i.exec(address)?.[1] ?? address;
  return isIP(mapped) === 0 ? UNKNOWN_ADDRESS : mapped;
}

/** Networks that are not reachable from the Internet: loopback, RFC 1918, RFC 6598, link-local, RFC 4193. */
export const PRIVATE_NETWORKS = [
  ['127.0.0.0', 8],
  ['10.0.0.0', 8],
  ['172.16.0.0', 12],
  ['192.168.0.0', 16],
  ['100.64.0.0', 10],
  ['169.254.0.0', 16],
  ['::1', 128],
  ['fc00::', 7],
  ['fe80::', 10],
] as const;

/** The family of a valid address or network. Unlike `isIP`, it compiles no expression for it, which takes milliseconds of a start. */
export const familyOf = (network: string) => (network.includes(':') ? 'ipv6' : 'ipv4');

const PRIVATE = new BlockList();
for (const [network, length] of PRIVATE_NETWORKS) PRIVATE.addSubnet(network, length, familyOf(network));

/** Whether a normalized address belongs to a private network. */
export function isPrivateAddress(address: string): boolean {
  const [bare = ''] = address.split('%');
  return isIP(bare) !== 0 && PRIVATE.check(bare, familyOf(bare));
}

/** Networks beside those that reach no host of the Internet, or a private one by another name. */
const SPECIAL_NETWORKS = [
  // "This network", protocol assignments, documentation, benchmarks, multicast, reserved.
  ['0.0.0.0', 8],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 4],
  ['240.0.0.0', 4],
  // Unspecified and IPv4-compatible, IPv4-mapped, NAT64, discard, Teredo and others, documentation (two), 6to4, segment
  // routing, site-local, multicast.
  ['::', 96],
  ['::ffff:0:0', 96],
  ['64:ff9b::', 32],
  ['100::', 64],
  ['2001::', 23],
  ['2001:db8::', 32],
  ['3fff::', 20],
  ['2002::', 16],
  ['5f00::', 16],
  ['fec0::', 10],
  ['ff00::', 8],
] as const;

/** By family: a list with the network of IPv4-mapped addresses contains every IPv4 address. */
const SPECIAL = { ipv4: new BlockList(), ipv6: new BlockList() };
for (const [network, length] of SPECIAL_NETWORKS) {
  const family = familyOf(network);
  SPECIAL[family].addSubnet(network, length, family);
}

/** Whether a normalized address belongs to a host of the Internet (IANA special-purpose address registries). */
export function isPublicAddress(address: string): boolean {
  const [bare = ''] = address.split('%');
  if (isIP(bare) === 0 || isPrivateAddress(bare)) return false;
  const family = familyOf(bare);
  return !SPECIAL[family].check(bare, family);
}

/** Whether an address is a loopback address. */
export function isLoopbackAddress(address: string | undefined): boolean {
  if (address === '127.0.0.1' || address === '::1') return true;
  return /^127\./.test(addressBlock(address));
}

/** The eight groups of an IPv6 address, which may be compressed, embed an IPv4 address or have a zone. */
export function groupsOf(address: string): number[] {
  const [bare = ''] = address.split('%');
  const plain = bare.replace(/(?<!\d)(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/, (_, a, b, c, d) =>
    [Number(a) * 256 + Number(b), Number(c) * 256 + Number(d)].map((group) => group.toString(16)).join(':'),
  );
  const [head = [], tail = []] = plain
    .split('::')
    .map((half) => half.split(':').filter((group) => group !== ''));
  const zeros = Array.from({ length: 8 - head.length - tail.length }, () => '0');
  return [...head, ...zeros, ...tail].map((group) => Number.parseInt(group, 16));
}

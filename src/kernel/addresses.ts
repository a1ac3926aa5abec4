import { isIP } from 'node:net';

/** Where clients come from, as throttles count them. */

/** What has no address of its own (a Unix socket, a proxy's nonsense) shares one bucket: nobody gains by it. */
const UNKNOWN = 'unknown';

/** An IPv4 address inside an IPv6 one (RFC 4291 §2.5.5.2). */
const MAPPED = '0:0:0:0:0:ffff:';

/**
 * The block an address is counted by: an IPv4 address itself, an IPv6 address by its /64, which one customer has to
 * choose from at will. `2001:db8:0:1::/64`, `203.0.113.7`, `unknown`.
 */
export function addressBlock(address: string | undefined): string {
  const family = isIP(address ?? '');
  if (family === 4) return address as string;
  if (family === 0) return UNKNOWN;
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

/** Whether an address stays on this machine. */
export function isLoopbackAddress(address: string | undefined): boolean {
  if (address === '127.0.0.1' || address === '::1') return true;
  return /^127\./.test(addressBlock(address));
}

/** The eight numbers of an IPv6 address, which may be shortened, end like an IPv4 one or name an interface. */
function groupsOf(address: string): number[] {
  const [bare = ''] = address.split('%');
  const plain = bare.replace(/(\d+)\.(\d+)\.(\d+)\.(\d+)$/, (_, a, b, c, d) =>
    [Number(a) * 256 + Number(b), Number(c) * 256 + Number(d)].map((group) => group.toString(16)).join(':'),
  );
  const [head = [], tail = []] = plain
    .split('::')
    .map((half) => half.split(':').filter((group) => group !== ''));
  const zeros = Array.from({ length: 8 - head.length - tail.length }, () => '0');
  return [...head, ...zeros, ...tail].map((group) => Number.parseInt(group, 16));
}

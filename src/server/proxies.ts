import { BlockList, isIP } from 'node:net';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { isPrivateAddress, plainAddress } from '../kernel/addresses.js';
import type { Health } from '../ops/health.js';
import type { ServerConfiguration } from './options.js';

/** Proxies in front that nobody named as such, so that all their clients pass for one. */

type Trusted = ServerConfiguration['trustProxy'];

/**
 * Logs the first proxy that is not listed, once.
 *
 * @returns answers with it, once there is one
 */
export function detectUnlistedProxy(
  app: FastifyInstance,
  variable: string,
  trusted: Trusted,
): () => Pick<Health, 'unlistedProxy'> {
  let found: Pick<Health, 'unlistedProxy'> = {};
  app.addHook('onRequest', (request, _reply, done) => {
    const address = found.unlistedProxy === undefined ? unlistedProxyOf(request) : undefined;
    if (address !== undefined) {
      found = { unlistedProxy: address };
      const { message, remedy } = unlistedProxyAdvice(address, variable, trusted);
      request.log.error({ proxy: address }, `${variable} ${message}. ${remedy}`);
    }
    done();
  });
  return () => found;
}

/**
 * The nearest address that nobody vouches for, when it forwards for somebody else from a network where clients of the
 * public do not live. From anywhere else the header is what anybody may send, and no news.
 */
function unlistedProxyOf(request: FastifyRequest): string | undefined {
  const forwarded = request.headers['x-forwarded-for'];
  if (!forwarded) return undefined;
  const { ip, ips = [ip] } = request;
  const address = plainAddress(ip);
  // The peer itself and every hop that is believed stand in `ips`.
  const isForwarding = ips.length <= String(forwarded).split(',').length;
  return isForwarding && isPrivateAddress(address) ? address : undefined;
}

/** Whether an address is one of the proxies in the list, as written or as part of a range. */
export function createProxyMatcher(trusted: Trusted): (address: string) => boolean {
  const list = new BlockList();
  for (const proxy of trusted || []) {
    const [network = '', length] = proxy.split('/');
    const family = isIP(network) === 4 ? 'ipv4' : 'ipv6';
    if (length === undefined) list.addAddress(network, family);
    else list.addSubnet(network, Number(length), family);
  }
  return (address) => {
    const plain = plainAddress(address).split('%')[0] as string;
    const family = isIP(plain);
    return family !== 0 && list.check(plain, family === 4 ? 'ipv4' : 'ipv6');
  };
}

/** What it means that a proxy is not listed, and the line that changes it. */
export function unlistedProxyAdvice(address: string, variable: string, trusted: Trusted) {
  return {
    message: `does not list ${address}, so its X-Forwarded-For header is ignored: all clients behind it share its rate limits and appear in the audit log under its address`,
    remedy: `If it is your proxy and it sets the header itself, set ${variable}=${[...(trusted || []), address].join(',')} and restart (docs/proxy.md).`,
  };
}

/** Whether somebody on this machine asks, and not a proxy on it. */
export function isLocalRequest({ socket, headers }: FastifyRequest): boolean {
  const isForwarded = ['x-forwarded-for', 'forwarded', 'via'].some((name) => headers[name] !== undefined);
  return !isForwarded && socket.remoteAddress !== undefined && socket.remoteAddress === socket.localAddress;
}

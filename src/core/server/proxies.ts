import { BlockList, isIP } from 'node:net';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { familyOf, isPrivateAddress, plainAddress } from '../kernel/addresses.js';
import type { Health } from '../ops/health.js';
import type { ServerConfiguration } from './options.js';

/** Detects proxies that are not in the list of trusted ones, so that all their clients are counted as one. */

type Trusted = ServerConfiguration['trustProxy'];

/**
 * Logs the first unlisted proxy.
 *
 * @returns a function that returns its address, once detected
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
      const { message, remedy } = unlistedProxyWarning(address, variable, trusted);
      request.log.error({ proxy: address }, `${variable} ${message}. ${remedy}`);
    }
    done();
  });
  return () => found;
}

/**
 * For a plugin, which uses the addresses of its host: logs that its variable has no effect, and returns a function that logs the
 * first proxy that the host does not trust.
 */
export function followHostProxy(
  { log }: Pick<FastifyInstance, 'log'>,
  { variable, value }: { variable: string; value: string | undefined },
): (request: FastifyRequest) => void {
  if (value !== undefined) {
    log.warn(
      `${variable} has no effect on a plugin, which uses the client addresses of its host: create the host with fastify({ trustProxy: '${value}' }) (docs/operate/proxy.md).`,
    );
  }
  let isLogged = false;
  return (request) => {
    const address = isLogged ? undefined : unlistedProxyOf(request);
    if (address === undefined) return;
    isLogged = true;
    log.error(
      { proxy: address },
      `The host does not trust ${address}, so its X-Forwarded-For header is ignored: all clients behind it share its rate limits. If it is your proxy, create the host with fastify({ trustProxy: '${address}' }) (docs/operate/proxy.md).`,
    );
  };
}

/**
 * The nearest untrusted address, if it sends X-Forwarded-For from a private network. From a public address, the header
 * is ignored, because any client may send it.
 */
function unlistedProxyOf(request: FastifyRequest): string | undefined {
  const forwarded = request.headers['x-forwarded-for'];
  if (!forwarded) return undefined;
  const { ip, ips = [ip] } = request;
  const address = plainAddress(ip);
  // `ips` contains the peer and every trusted hop.
  const isForwarding = ips.length <= String(forwarded).split(',').length;
  return isForwarding && isPrivateAddress(address) ? address : undefined;
}

/** Returns a function that checks whether an address is in the list of trusted proxies. */
export function createProxyMatcher(trusted: Trusted): (address: string) => boolean {
  const list = new BlockList();
  for (const proxy of trusted || []) {
    const [network = '', length] = proxy.split('/');
    const family = familyOf(network);
    if (length === undefined) list.addAddress(network, family);
    else list.addSubnet(network, Number(length), family);
  }
  return (address) => {
    const plain = plainAddress(address).split('%')[0] as string;
    return isIP(plain) !== 0 && list.check(plain, familyOf(plain));
  };
}

/** The warning about an unlisted proxy. */
export function unlistedProxyWarning(address: string, variable: string, trusted: Trusted) {
  return {
    message: `does not list ${address}, so its X-Forwarded-For header is ignored: all clients behind it share its rate limits and appear in the audit log under its address`,
    remedy: `If it is your proxy and it sets the header itself, set ${variable}=${[...(trusted || []), address].join(',')} and restart (docs/operate/proxy.md).`,
  };
}

/** Whether a request comes directly from this machine, not through a proxy on it. */
export function isLocalRequest({ socket, headers }: FastifyRequest): boolean {
  const isForwarded = ['x-forwarded-for', 'forwarded', 'via'].some((name) => headers[name] !== undefined);
  return !isForwarded && socket.remoteAddress !== undefined && socket.remoteAddress === socket.localAddress;
}

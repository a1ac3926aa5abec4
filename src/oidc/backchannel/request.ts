import { lookup as systemLookup } from 'node:dns';
import type { IncomingMessage } from 'node:http';
import { isIP, type LookupFunction } from 'node:net';
import { isPublicAddress, plainAddress } from '../../kernel/addresses.js';

/** Sends a logout token to an application. Resolves with the status of the response. @throws if there is none */
export type PostLogoutToken = (uri: string, token: string) => Promise<number>;

export interface RequestOptions {
  /** Whether applications in private networks, on this machine or without TLS are called. */
  allowPrivate: boolean;
  lookup?: typeof systemLookup;
}

/** For the whole exchange. */
const TIMEOUT_MS = 5_000;

/**
 * A client cannot make the provider call services that only the provider reaches: the addresses of a name are checked when
 * the connection is opened, redirects are not followed, and of the response only the status is read.
 */
export function createLogoutRequest({
  allowPrivate,
  lookup = systemLookup,
}: RequestOptions): PostLogoutToken {
  const isAllowed = (address: string) => allowPrivate || isPublicAddress(plainAddress(address));

  const checkedLookup: LookupFunction = (hostname, options, callback) => {
    lookup(hostname, { ...options, all: true }, (error, addresses) => {
      if (error) return callback(error, '', 0);
      const [first] = addresses;
      if (!first || !addresses.every(({ address }) => isAllowed(address)))
        return callback(new Error(PRIVATE_ADDRESS), '', 0);
      if (options.all) return callback(null, addresses);
      return callback(null, first.address, first.family);
    });
  };

  return async (uri, token) => {
    const url = new URL(uri);
    const isSecure = url.protocol === 'https:';
    if (!isSecure && !allowPrivate) throw new Error('it is not https');
    const host = url.hostname.replace(/^\[|\]$/g, '');
    // For an address, Node does not look anything up.
    if (isIP(host) !== 0 && !isAllowed(host)) throw new Error(PRIVATE_ADDRESS);
    const { request } = await (isSecure ? import('node:https') : import('node:http'));
    const body = new URLSearchParams({ logout_token: token }).toString();
    return new Promise((resolve, reject) => {
      const sent = request(url, {
        method: 'POST',
        // A pooled connection was opened for another address.
        agent: false,
        lookup: checkedLookup,
        signal: AbortSignal.timeout(TIMEOUT_MS),
        headers: {
          'content-type': 'application/x-www-form-urlencoded',
          'content-length': Buffer.byteLength(body),
        },
      });
      sent.on('error', reject);
      sent.on('response', (response: IncomingMessage) => {
        response.destroy();
        resolve(response.statusCode ?? 0);
      });
      sent.end(body);
    });
  };
}

const PRIVATE_ADDRESS = 'its address is not public';

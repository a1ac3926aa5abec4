import { lookup as systemLookup } from 'node:dns';
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { isIP, type LookupFunction } from 'node:net';
import { isLoopbackAddress, isPublicAddress, plainAddress } from '../kernel/addresses.js';

/**
 * Requests to addresses that clients choose. They cannot make the provider call services that only the provider
 * reaches: the addresses of a name are checked when the connection is opened, redirects are not followed, and no cookies or
 * credentials are sent.
 */

/**
 * `public`: https to hosts of the Internet. `loopback`: also this machine, with or without TLS, for development. `private`:
 * every host, with or without TLS.
 */
export type Reach = 'public' | 'loopback' | 'private';

export interface OutboundOptions {
  reach: Reach;
  lookup?: typeof systemLookup;
  /** For the whole exchange. */
  timeoutMs?: number;
}

export interface OutboundRequestOptions {
  method: 'GET' | 'POST';
  headers: Readonly<Record<string, string | number>>;
  body?: string;
  /** The longest body of a response that is read. With 0, the response ends after its headers. */
  maxBytes: number;
  /** Reads the beginning of a longer body, or of one that ends early, instead of failing. */
  isExcerpt?: boolean;
  /** Ends the exchange. */
  signal?: AbortSignal;
}

export interface OutboundResponse {
  status: number;
  headers: IncomingHttpHeaders;
  /** Empty if nothing is read. */
  body: string;
}

/** @throws if the address is refused, there is no response, or it is too long or too slow */
export type SendRequest = (uri: string, options: OutboundRequestOptions) => Promise<OutboundResponse>;

const TIMEOUT_MS = 5_000;

const PRIVATE_ADDRESS = 'its address is not public';

export function createOutbound({
  reach,
  lookup = systemLookup,
  timeoutMs = TIMEOUT_MS,
}: OutboundOptions): SendRequest {
  const isAllowed = (address: string): boolean => {
    const plain = plainAddress(address);
    return (
      reach === 'private' || isPublicAddress(plain) || (reach === 'loopback' && isLoopbackAddress(plain))
    );
  };

  /** Without TLS, the address has to be one of those beyond the Internet that the reach adds. */
  const mayLackTls = (address: string): boolean =>
    reach === 'private' || (reach === 'loopback' && isLoopbackAddress(plainAddress(address)));

  /** The connection is opened to an address that is checked here: a second lookup could return another one. */
  const checkedLookup =
    (isAdmitted: (address: string) => boolean): LookupFunction =>
    (hostname, options, callback) => {
      lookup(hostname, { ...options, all: true }, (error, addresses) => {
        if (error) return callback(error, '', 0);
        const [first] = addresses;
        if (!first || !addresses.every(({ address }) => isAdmitted(address)))
          return callback(new Error(PRIVATE_ADDRESS), '', 0);
        if (options.all) return callback(null, addresses);
        return callback(null, first.address, first.family);
      });
    };

  return async (uri, { method, headers, body, maxBytes, isExcerpt = false, signal }) => {
    const url = new URL(uri);
    const isSecure = url.protocol === 'https:';
    if (!isSecure && (url.protocol !== 'http:' || reach === 'public')) throw new Error('it is not https');
    const isAdmitted = isSecure ? isAllowed : mayLackTls;
    const host = url.hostname.replace(/^\[|\]$/g, '');
    // For an address, Node does not look anything up.
    if (isIP(host) !== 0 && !isAdmitted(host)) throw new Error(PRIVATE_ADDRESS);
    const { request } = await (isSecure ? import('node:https') : import('node:http'));
    return new Promise((resolve, reject) => {
      const sent = request(url, {
        method,
        // A pooled connection was opened for another address.
        agent: false,
        lookup: checkedLookup(isAdmitted),
        signal: AbortSignal.any([AbortSignal.timeout(timeoutMs), ...(signal ? [signal] : [])]),
        headers: { ...headers, ...(body !== undefined && { 'content-length': Buffer.byteLength(body) }) },
      });
      sent.on('error', reject);
      sent.on('response', (response: IncomingMessage) => {
        const { statusCode: status = 0, headers: received } = response;
        if (maxBytes === 0) {
          response.destroy();
          return resolve({ status, headers: received, body: '' });
        }
        return readBody(response, maxBytes, isExcerpt).then(
          (text) => resolve({ status, headers: received, body: text }),
          (error: unknown) => {
            sent.destroy();
            reject(error);
          },
        );
      });
      sent.end(body);
    });
  };
}

/**
 * Reads at most `maxBytes` of a response body: of an excerpt, the beginning in any media type.
 *
 * @throws if another body is longer, ends early or is not UTF-8
 */
async function readBody(response: IncomingMessage, maxBytes: number, isExcerpt: boolean): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      size += chunk.length;
      if (size > maxBytes && !isExcerpt) throw new Error(`its response is longer than ${maxBytes} bytes`);
      // Leaving the loop closes the connection.
      if (size >= maxBytes && isExcerpt) break;
    }
  } catch (error) {
    // The status is known; the rest of the body is not needed.
    if (!isExcerpt) throw error;
  }
  return new TextDecoder('utf-8', { fatal: !isExcerpt }).decode(Buffer.concat(chunks).subarray(0, maxBytes));
}

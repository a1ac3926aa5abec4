import { isLoopback } from '../../core/config/public-url.js';

/** Longest identifier of a resource. */
const MAX_LENGTH = 512;

/**
 * Whether the text may be the identifier of a resource: an absolute URI without a fragment and a query (RFC 8707 §2).
 * Other text is never looked up, because a store may be unable to represent it.
 */
export const isResourceUri = (text: string): boolean =>
  text.length <= MAX_LENGTH && /^https?:\/\/[\w.~:@!$&'()*+,;=/[\]-]+$/i.test(text);

/**
 * How a resource may be registered that a request names so, this way first: scheme and host have no case, and the path of an origin
 * may be left out (RFC 3986 §6.2).
 */
export function spellingsOf(text: string): string[] {
  const [scheme = '', , host = '', ...parts] = text.split('/');
  const origin = `${scheme}//${host}`.toLowerCase();
  const path = parts.map((part) => `/${part}`).join('');
  return [origin + path, ...(path === '' ? [`${origin}/`] : path === '/' ? [origin] : [])];
}

/**
 * Why an operator may not register the identifier, as the end of a sentence, or `null`. Tokens contain it byte for
 * byte, so it must be written as URL parsers write it.
 *
 * @param allowHttp whether http to this machine is accepted, for development
 */
export function identifierProblem(identifier: string, allowHttp: boolean): string | null {
  if (!isResourceUri(identifier) || !URL.canParse(identifier))
    return `must be an absolute URI of at most ${MAX_LENGTH} characters without a query, a fragment and percent-encoding, like https://api.example.com`;
  const { href, protocol, hostname, username, password } = new URL(identifier);
  if (username || password) return 'must not contain a user name or password';
  if (href !== identifier && href !== `${identifier}/`) return `must be written as ${href}`;
  if (protocol === 'https:' || (allowHttp && isLoopback(hostname))) return null;
  return allowHttp
    ? 'must be https, like https://api.example.com; http is allowed for loopback addresses only'
    : 'must be https, like https://api.example.com';
}

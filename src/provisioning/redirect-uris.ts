import { isLoopback } from '../config/public-url.js';

/** Two slashes, a host and at most a port: nothing for a browser to repair or for its policy to trip over. */
const WEB_ORIGIN = /^https?:\/\/([\w.-]+|\[[\da-f:.]+\])(:\d+)?([/?]|$)/i;

/**
 * Parameters of an authorization response (RFC 6749 §4.1.2, RFC 9207, OpenID Connect Core and Session Management, JARM).
 * A URI that brings one would hand the application two of them, of which it might believe the one that is not ours.
 */
const RESPONSE_PARAMETERS = new Set([
  'code',
  'state',
  'iss',
  'error',
  'error_description',
  'error_uri',
  'session_state',
  'id_token',
  'access_token',
  'response',
]);

/**
 * Which redirect URIs a client may register (RFC 9700 §4.1, RFC 8252 §7): https, http to this machine, or the
 * reverse-DNS scheme of a native application. Anything a browser or a parser could read as somewhere else is out.
 *
 * @param allowHttp whether http to other hosts is let through, for development
 * @returns what is wrong, as the end of a sentence, or `null`
 */
export function redirectUriProblem(uri: string, allowHttp: boolean): string | null {
  if (/[^\x21-\x7e]|[*\\#]/.test(uri))
    return 'must not contain spaces, control characters, a wildcard, a backslash or a fragment';
  if (!URL.canParse(uri)) return 'must be an absolute URI, like https://app.example.com/callback';
  const { protocol, hostname, username, password, searchParams } = new URL(uri);
  if (username || password) return 'must not contain a user name or password';
  const reserved = [...searchParams.keys()].find((name) => RESPONSE_PARAMETERS.has(plainName(name)));
  if (reserved !== undefined) {
    return `must not contain the parameter ${plainName(reserved)}, which is reserved for authorization responses`;
  }
  const isWeb = protocol === 'https:' || protocol === 'http:';
  if (isWeb && !WEB_ORIGIN.test(uri)) return 'must contain a host, like https://app.example.com/callback';
  if (protocol === 'https:') return null;
  if (protocol === 'http:') {
    return isLoopback(hostname) || allowHttp
      ? null
      : 'must be https, like https://app.example.com/callback; http is allowed for loopback addresses only';
  }
  return /^[a-z][a-z0-9-]*(\.[a-z0-9-]+)+:$/.test(protocol)
    ? null
    : 'must be https, http on a loopback address, or a scheme like com.example.app:/callback';
}

/** A parameter as frameworks read it that take `Code`, `code[]` and `code[0]` for `code`. */
function plainName(name: string): string {
  return name.replace(/\[.*$/s, '').trim().toLowerCase();
}

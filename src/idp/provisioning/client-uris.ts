import { isLoopback } from '../../core/config/public-url.js';
import type { ErrorDetail } from '../../core/kernel/errors.js';

/** Which addresses a client may register. */

export interface UriRules {
  /** Whether redirect URIs may use http on addresses that are not loopback, for development. */
  allowHttp: boolean;
  /** Schemes of native applications without a dot, which the operator allows. */
  nativeSchemes: readonly string[];
}

export const LOGO_RULE =
  'must be an https address without a user name, like https://app.example.com/logo.png, or empty for no logo';

/** The parts of an address of the web without a user name; `null` for another text. */
function readWebUri(uri: string): URL | null {
  if (/[^\x21-\x7e]|[\\#]/.test(uri) || !URL.canParse(uri) || !WEB_ORIGIN.test(uri)) return null;
  const url = new URL(uri);
  return url.username || url.password ? null : url;
}

/** Its origin becomes a source in the content security policy of the pages that show the image. */
export const isLogoUri = (uri: string): boolean => readWebUri(uri)?.protocol === 'https:';

/** Whether the provider may read a document there; which addresses it connects to is decided then. */
export function documentUriProblem(uri: string): string | null {
  const url = readWebUri(uri);
  const isReadable = url?.protocol === 'https:' || (url?.protocol === 'http:' && isLoopback(url.hostname));
  return isReadable ? null : 'must be an https address, like https://app.example.com/jwks.json';
}

const MAX_ID_LENGTH = 512;

/**
 * Why an address of a metadata document is no identifier of a client, as the end of a sentence, or `null`. It is written as the URL parser writes it, so that
 * two texts are never one address.
 */
export function metadataIdProblem(text: string, allowsLoopback: boolean): string | null {
  if (text.length > MAX_ID_LENGTH) return `is longer than ${MAX_ID_LENGTH} characters`;
  if (!/^https?:\/\/[\x21-\x7e]+$/.test(text) || !URL.canParse(text)) return 'is no https address';
  if (/[?#\\]/.test(text)) return 'has a query or a fragment';
  const url = new URL(text);
  if (url.protocol !== 'https:' && !(allowsLoopback && isLoopback(url.hostname))) return 'is not https';
  if (url.username || url.password) return 'contains a user name or password';
  if (url.href !== text || url.hostname.endsWith('.')) return `is not written as ${url.href}`;
  return url.pathname === '/' ? 'has no path' : null;
}

/** The rules of redirect URIs for the web: the provider itself calls it. */
export const noticeUriProblem = (uri: string, rules: UriRules): string | null =>
  /^https?:/i.test(uri)
    ? redirectUriProblem(uri, rules)
    : 'must be an https address, like https://app.example.com/notices, or empty for none';

export function uriProblems(field: string, uris: readonly string[], rules: UriRules): ErrorDetail[] {
  return uris.flatMap((uri, index) => {
    const problem = redirectUriProblem(uri, rules);
    return problem === null ? [] : [{ path: `${field}.${index}`, message: problem }];
  });
}

/** Two slashes, a host and an optional port: browsers and Content Security Policy read it without corrections. */
const WEB_ORIGIN = /^https?:\/\/([\w.-]+|\[[\da-f:.]+\])(:\d+)?([/?]|$)/i;

/**
 * Parameters of an authorization response (RFC 6749 §4.1.2, RFC 9207, OpenID Connect Core and Session Management, JARM).
 * A URI that contains one would give the application two values, and it might use the one that is not the provider's.
 */
const RESPONSE_PARAMETERS = new Set(
  'code state iss error error_description error_uri session_state id_token access_token response'.split(' '),
);

/**
 * Which redirect URIs a client may register (RFC 9700 §4.1, RFC 8252 §7): https, http to this machine, the
 * reverse-DNS scheme of a native application, or another scheme that the operator allows. A URI that a browser or parser
 * could read as another address is rejected.
 *
 * @returns the problem, as the end of a sentence, or `null`
 */
export function redirectUriProblem(uri: string, { allowHttp, nativeSchemes }: UriRules): string | null {
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
  return /^[a-z][a-z0-9-]*(\.[a-z0-9-]+)+:$/.test(protocol) || nativeSchemes.includes(protocol.slice(0, -1))
    ? null
    : 'must be https, http on a loopback address, or a scheme like com.example.app:/callback';
}

/** The name as frameworks read it that treat `Code`, `code[]` and `code[0]` as `code`. */
function plainName(name: string): string {
  return name.replace(/\[.*$/s, '').trim().toLowerCase();
}

/** Schemes that browsers or operating systems handle themselves. */
const SYSTEM_SCHEMES = new Set(
  (
    'about blob chrome data file filesystem ftp http https intent javascript ' +
    'mailto resource sms ssh tel urn vbscript view-source ws wss'
  ).split(' '),
);

/** Why a scheme cannot be one of the `nativeSchemes`; `undefined` if it can. */
export function nativeSchemeProblem(scheme: string): string | undefined {
  if (!/^[a-z][a-z0-9+-]*$/.test(scheme)) {
    return `'${scheme}' is not a scheme: use lower-case letters, digits, + and -, like cursor; one with a dot is always allowed`;
  }
  return SYSTEM_SCHEMES.has(scheme) ? `'${scheme}' is a scheme of browsers or operating systems` : undefined;
}

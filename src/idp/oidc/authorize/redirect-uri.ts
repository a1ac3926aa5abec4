import { type Client, isPublicClient } from '../directory.js';

/** http on a loopback address, with the port as a separate part. */
const LOOPBACK = /^(http:\/\/(?:127\.0\.0\.1|\[::1\]|localhost))(?::\d{1,5})?(?=[/?]|$)/;

/**
 * Compares exactly (RFC 9700 §2.1). Only public clients may use another port of a loopback address, because native
 * applications listen on any free port (RFC 8252 §7.3).
 */
export function matchesRedirectUri(client: Client, uri: string): boolean {
  const { redirectUris } = client;
  if (redirectUris.includes(uri)) return true;
  // The pattern also matches ports out of range.
  if (!isPublicClient(client) || !LOOPBACK.test(uri) || !URL.canParse(uri)) return false;
  const withoutPort = (text: string) => text.replace(LOOPBACK, '$1');
  return redirectUris.some((known) => LOOPBACK.test(known) && withoutPort(known) === withoutPort(uri));
}

/** The redirect URI with response parameters added to its query (RFC 6749 §4.1.2). */
export function withResponse(redirectUri: string, response: Record<string, string | undefined>): string {
  const pairs = Object.entries(response).flatMap(([name, value]) =>
    // A parameter may contain a lone surrogate, which cannot be encoded.
    value === undefined ? [] : [`${name}=${encodeURIComponent(value.toWellFormed())}`],
  );
  return `${redirectUri}${redirectUri.includes('?') ? '&' : '?'}${pairs.join('&')}`;
}

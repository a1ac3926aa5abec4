import type { Client } from '../model.js';

/** http to this machine, with the port set apart. */
const LOOPBACK = /^(http:\/\/(?:127\.0\.0\.1|\[::1\]|localhost))(?::\d{1,5})?(?=[/?]|$)/;

/**
 * Exact comparison (RFC 9700 §2.1). Only a native application, which listens at whatever port is free, may
 * differ in the port of a loopback address (RFC 8252 §7.3).
 */
export function matchesRedirectUri({ redirectUris, secretHash }: Client, uri: string): boolean {
  if (redirectUris.includes(uri)) return true;
  // The pattern lets ports through that there are not.
  if (secretHash !== undefined || !LOOPBACK.test(uri) || !URL.canParse(uri)) return false;
  const withoutPort = (text: string) => text.replace(LOOPBACK, '$1');
  return redirectUris.some((known) => LOOPBACK.test(known) && withoutPort(known) === withoutPort(uri));
}

/** The redirect URI with an answer in its query (RFC 6749 §4.1.2); what it holds already stays. */
export function withAnswer(redirectUri: string, answer: Record<string, string | undefined>): string {
  const pairs = Object.entries(answer).flatMap(([name, value]) =>
    // JSON may hold half a character, which no address can.
    value === undefined ? [] : [`${name}=${encodeURIComponent(value.toWellFormed())}`],
  );
  return `${redirectUri}${redirectUri.includes('?') ? '&' : '?'}${pairs.join('&')}`;
}

/**
 * What a browser must be allowed to be redirected to after the form: the origin, or the scheme of an application. http
 * is this machine or development, where one port leads to another: from a broker to its application, from a server to
 * its pages. Content Security Policy could not name the IPv6 address of this machine, either (CSP3 §2.3.1).
 */
export function formTarget(redirectUri: string): string {
  const { origin, protocol } = new URL(redirectUri);
  return origin === 'null' || protocol === 'http:' ? protocol : origin;
}

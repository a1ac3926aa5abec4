import type { IncomingHttpHeaders } from 'node:http';

/**
 * Whether a page of another site sent the request without a preflight, as a form, link or image (Fetch Metadata). Such a
 * request has the address of a visitor of that page, not of its author.
 */
export function isSimpleCrossSite(headers: IncomingHttpHeaders): boolean {
  const { 'sec-fetch-site': site, 'sec-fetch-mode': mode } = headers;
  return (site === 'cross-site' || site === 'same-site') && (mode === 'no-cors' || mode === 'navigate');
}

/** Whether a page of another origin sent a form. `own` is the origin of the form. */
export function isFormOfOtherSite(
  { 'sec-fetch-site': site, origin }: IncomingHttpHeaders,
  own: string,
): boolean {
  return site === 'cross-site' || site === 'same-site' || (origin !== undefined && origin !== own);
}

/**
 * Whether a page of the server's own origin or of one of these sent the request, or no page at all. Browsers that do not send
 * Fetch Metadata send the origin with every request that is not a GET.
 */
export function isTrustedOrigin(
  { 'sec-fetch-site': site, origin }: IncomingHttpHeaders,
  origins: readonly string[],
): boolean {
  if (site === 'same-origin') return true;
  return origin === undefined ? site === undefined || site === 'none' : origins.includes(origin);
}

/**
 * Whether a page or a navigation sent the request, possibly with cached credentials. The `fetch` of a program sends
 * `sec-fetch-mode: cors` only.
 */
export function isBrowser(headers: IncomingHttpHeaders): boolean {
  const { origin, 'sec-fetch-site': site, 'sec-fetch-mode': mode, 'sec-fetch-dest': destination } = headers;
  return (
    origin !== undefined ||
    site !== undefined ||
    mode === 'navigate' ||
    mode === 'no-cors' ||
    (destination !== undefined && destination !== 'empty')
  );
}

/** Browsers by their token in the user agent. The order matters: most of them also contain the tokens of later ones. */
const FAMILIES: readonly (readonly [token: RegExp, family: string])[] = [
  [/\bEdg(e|A|iOS)?\//, 'Edge'],
  [/\b(OPR|OPT|OPiOS|OPX)\//, 'Opera'],
  [/\bSamsungBrowser\//, 'Samsung Internet'],
  [/\bVivaldi\//, 'Vivaldi'],
  [/\bYaBrowser\//, 'Yandex Browser'],
  [/\bDuckDuckGo\//, 'DuckDuckGo'],
  [/\b(Firefox|FxiOS)\//, 'Firefox'],
  [/\b(Chrome|CriOS|Chromium)\//, 'Chrome'],
  [/\bVersion\/[\d.]+ (Mobile(\/\w+)? )?Safari\//, 'Safari'],
];

/** Operating systems by their token in the user agent. iPads call themselves Macs, unless they say otherwise. */
const SYSTEMS: readonly (readonly [token: RegExp, system: string])[] = [
  [/\b(iPhone|iPod)\b/, 'iOS'],
  [/\biPad\b/, 'iPadOS'],
  [/\bAndroid\b/, 'Android'],
  [/\bCrOS\b/, 'ChromeOS'],
  [/\bWindows\b/, 'Windows'],
  [/\bMac OS X\b/, 'macOS'],
  [/\bLinux\b/, 'Linux'],
];

/** Characters of a header that are matched, because a client chooses its length: browsers send 300 at most. */
export const MATCHED_CHARACTERS = 512;

const matching = (families: typeof FAMILIES, userAgent = ''): string | undefined => {
  const text = userAgent.slice(0, MATCHED_CHARACTERS);
  return families.find(([token]) => token.test(text))?.[1];
};

/** The operating system of a browser, without its version. `undefined` if it is unknown. */
export const systemFamily = (userAgent: string | undefined): string | undefined =>
  matching(SYSTEMS, userAgent);

/** The family of a browser, without version or system. `undefined` for other programs. */
export const browserFamily = (userAgent: string | undefined): string | undefined =>
  matching(FAMILIES, userAgent);

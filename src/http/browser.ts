import type { IncomingHttpHeaders } from 'node:http';

/**
 * Whether a page of another site sent the request in a way that needs no permission: as a form, a link or an image
 * (Fetch Metadata). Such a request may be made from the address of any visitor of that page.
 */
export function isSimpleCrossSite(headers: IncomingHttpHeaders): boolean {
  const { 'sec-fetch-site': site, 'sec-fetch-mode': mode } = headers;
  return (site === 'cross-site' || site === 'same-site') && (mode === 'no-cors' || mode === 'navigate');
}

/**
 * Whether a page or a navigation made the request: then the credentials may be cached ones that nobody meant to
 * send. A program's own fetch says `sec-fetch-mode: cors` and nothing else.
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

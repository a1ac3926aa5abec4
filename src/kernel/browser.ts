import type { IncomingHttpHeaders } from 'node:http';

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

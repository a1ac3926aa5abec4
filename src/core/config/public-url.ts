import { Type } from 'typebox';
import { type Annotation, option } from './options.js';
import { formatValue } from './validation-messages.js';

/** The public URL of a service, from which all links are built. Never derived from a request. */
export type PublicUrl = ReturnType<typeof createPublicUrl>;

/** @param path path of the default URL during development */
export function createPublicUrl(configured: string | undefined, defaultPort: number, path = '') {
  const local = (port: number) => `http://localhost:${port}${path}`;
  let url = configured?.replace(/\/$/, '') ?? local(defaultPort);
  let isKnown = configured !== undefined;
  /** Sets the port of a URL that is not configured, when the server listens. */
  const assumePort = (port: number) => {
    if (configured === undefined) url = local(port);
    isKnown = true;
  };
  return {
    /** Absolute, without a trailing slash. */
    get: (): string => url,
    assumePort,
    /** Sets the port from the first request, if the server does not listen itself. */
    observePort(port: number | undefined) {
      // A Unix socket has none.
      if (!isKnown && port !== undefined) assumePort(port);
    },
  };
}

/** The option for a public URL. */
export function publicUrlOption(annotation: Pick<Annotation, 'env' | 'doc'>) {
  return option(Type.Optional(Type.String()), {
    ...annotation,
    shown: 'http://localhost:<port> outside production',
    required: 'production',
    check: (url) => addressProblem(url ?? ''),
    safe: (url) => insecureAddress(url ?? ''),
  });
}

/** Describes why an address is insecure, as the end of a sentence. */
export function insecureAddress(url: string): string | undefined {
  const { protocol, hostname } = new URL(url);
  return protocol === 'https:' || isLoopback(hostname)
    ? undefined
    : 'must be https, like https://app.example.com.';
}

/** Describes why the address of a service is invalid, as the end of a sentence. */
export function addressProblem(text: string): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : null;
  // Links and the issuer contain the text as it is, so what `URL` would correct is rejected.
  if (!url || !/^https?:\/\/[^/\\]/i.test(text))
    return `must be an absolute http or https address, like https://app.example.com; given: ${formatValue(text)}.`;
  if (url.username || url.password || url.search || url.hash || /[\s?#]/.test(text)) {
    return 'must not contain credentials, a query or a fragment, like https://app.example.com.';
  }
  if (/["<>\\`]/.test(text) || url.pathname.endsWith('//')) {
    return 'must not contain quotation marks, angle brackets or backslashes, and must end with at most one slash.';
  }
  return undefined;
}

/** Describes why a mount path is invalid, as the end of a sentence; `null` if it is valid. */
export function mountProblem(path: string): string | null {
  // Browsers resolve dot segments, so such a path would never be requested.
  return /^(\/(?!\.\.?(\/|$))[\w.~-]+)+$/.test(path)
    ? null
    : `must be a path like /api, without a trailing slash; given: ${formatValue(path)}.`;
}

/** The path of a public URL, which includes what a proxy adds: empty at the root. */
export const mountPath = (publicUrl: string): string => new URL(publicUrl).pathname.replace(/\/$/, '');

/** Whether a host name is a loopback address. */
export function isLoopback(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || /^127(\.\d{1,3}){3}$/.test(hostname);
}

/** Describes why a path of the application is invalid, as the end of a sentence; `undefined` if it is valid. */
export function pathProblem(path: string, example: string): string | undefined {
  const hasScheme = /^[a-z][a-z0-9+.-]*:/i.test(path);
  const isPath = /^\/(?![/\\])[\x21\x22\x24-\x5b\x5d-\x7e]*$/.test(withLeadingSlash(path));
  return isPath && !hasScheme
    ? undefined
    : `must be a path of the application, like ${example}; given: ${formatValue(path)}.`;
}

export const withLeadingSlash = (path: string): string => (path.startsWith('/') ? path : `/${path}`);

export const withQuery = (url: string, query: string): string =>
  `${url}${url.includes('?') ? '&' : '?'}${query}`;

import { Type } from 'typebox';
import { type Annotation, option } from './options.js';
import { shown } from './validation-messages.js';

/** The public address of a service: the base of every link it emits. Never read from a request. */
export interface PublicUrl {
  /** Absolute, without a trailing slash. */
  get(): string;
  /** Development without a configured address: the port at which this server listens. */
  assumePort(port: number): void;
  /** The port at which a request has arrived. The first one counts, where the server does not listen itself. */
  observePort(port: number | undefined): void;
}

/** @param path what an address made up for development ends with */
export function createPublicUrl(configured: string | undefined, defaultPort: number, path = ''): PublicUrl {
  const local = (port: number) => `http://localhost:${port}${path}`;
  let url = configured?.replace(/\/$/, '') ?? local(defaultPort);
  let isKnown = configured !== undefined;
  const assumePort = (port: number) => {
    if (configured === undefined) url = local(port);
    isKnown = true;
  };
  return {
    get: () => url,
    assumePort,
    observePort(port) {
      // A Unix socket has none.
      if (!isKnown && port !== undefined) assumePort(port);
    },
  };
}

/** The option that holds it. */
export function publicUrlOption(annotation: Pick<Annotation, 'env' | 'doc'>) {
  return option(Type.Optional(Type.String()), {
    ...annotation,
    shown: 'http://localhost:<port> outside production',
    required: 'production',
    check: (url) => malformation(url ?? ''),
    safe: (url) => {
      const { protocol, hostname } = new URL(url ?? '');
      return protocol === 'https:' || isLoopback(hostname)
        ? undefined
        : 'must be https, like https://app.example.com.';
    },
  });
}

function malformation(text: string): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : null;
  // What a browser would put right stays wrong in every link and in the issuer, which are the text itself.
  if (!url || !/^https?:\/\/[^/\\]/i.test(text))
    return `must be an absolute http or https address, like https://app.example.com; given: ${shown(text)}.`;
  if (url.username || url.password || url.search || url.hash || /[\s?#]/.test(text)) {
    return 'must not contain credentials, a query or a fragment, like https://app.example.com.';
  }
  if (/["<>\\`]/.test(text) || url.pathname.endsWith('//')) {
    return 'must not contain quotation marks, angle brackets or backslashes, and must end with at most one slash.';
  }
  return undefined;
}

/** What is wrong with a path to mount something at, as the end of a sentence, or `null`. */
export function mountProblem(path: string): string | null {
  // A browser takes dots for a way back, and never asks for them.
  return /^(\/(?!\.\.?(\/|$))[\w.~-]+)+$/.test(path)
    ? null
    : `must be a path like /api, without a trailing slash; given: ${shown(path)}.`;
}

/** Whether a host name stays on this machine. */
export function isLoopback(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || /^127(\.\d{1,3}){3}$/.test(hostname);
}

/** What is wrong with a path of the application that is appended to its public address, as the end of a sentence. */
export function pathProblem(path: string, example: string): string | undefined {
  const hasScheme = /^[a-z][a-z0-9+.-]*:/i.test(path);
  const isPath = /^\/(?![/\\])[\x21\x22\x24-\x5b\x5d-\x7e]*$/.test(withLeadingSlash(path));
  return isPath && !hasScheme
    ? undefined
    : `must be a path of the application, like ${example}; given: ${shown(path)}.`;
}

export const withLeadingSlash = (path: string): string => (path.startsWith('/') ? path : `/${path}`);

export const withQuery = (url: string, query: string): string =>
  `${url}${url.includes('?') ? '&' : '?'}${query}`;

import { createClient } from 'saas-backend/client';
import type { ActiveSession, Fetch, SaasClient } from '../client/index.js';

/** The session of a visitor on the server that renders the page: nothing here depends on Node.js. */

/** Headers of `fetch`, of Node.js, or of a framework. */
export type VisitHeaders =
  | { get(name: string): string | null }
  | { readonly [name: string]: string | readonly string[] | undefined };

/** A request of a visitor, or its headers. */
export type Visit = { readonly headers: VisitHeaders } | VisitHeaders;

/** What the server knows about a visitor beside the headers. */
export interface VisitInfo {
  /** The IP address of the visitor, where the framework or the platform states it. */
  address?: string | undefined;
}

/** The sessions of visitors, and calls of the API for them. */
export interface VisitorSessions {
  /**
   * Who is signed in, as stored now; null for a visitor, who causes no request. Any number of requests may ask at the same time: a
   * read never ends a session. Rejects with `SaasError` if the backend does not answer.
   */
  getSession(visit: Visit, info?: VisitInfo): Promise<ActiveSession | null>;
  /** An access token of the visitor, for routes that require one; null for a visitor who is not signed in. Never send it to the browser. */
  getAccessToken(visit: Visit, info?: VisitInfo): Promise<string | null>;
  /**
   * A client that acts as the visitor. Create one for each request. A sign-in or sign-out with it sets cookies, which it appends as
   * `set-cookie` to `info.responseHeaders`: send them with the response.
   */
  client(visit: Visit, info?: VisitInfo & { responseHeaders?: Headers | undefined }): SaasClient;
}

/** Sends a request of a visitor to the backend. */
export type SendVisit = (
  url: string,
  init: RequestInit & { headers: Headers },
  visitor: { headers: Headers; address: string | undefined },
) => Promise<Response>;

/** What the backend gets of the headers of a visitor, beside the cookie of the session. */
const PASSED = ['origin', 'user-agent', 'accept-language', 'x-forwarded-for'];

/** @param send reaches the backend whose API is at `baseUrl` */
export function createVisitorSessions(baseUrl: string, send: SendVisit): VisitorSessions {
  let root = baseUrl;
  while (root.endsWith('/')) root = root.slice(0, -1);

  const client: VisitorSessions['client'] = (visit, { address, responseHeaders } = {}) => {
    const headers = headersOf(visit);
    const { bearer, cookie } = credentialsIn(headers);
    const pass: Fetch = async (url, { credentials: _, ...init }) => {
      const sent = new Headers(init.headers);
      for (const name of PASSED) {
        const value = headers.get(name);
        if (value !== null) sent.set(name, value);
      }
      if (address !== undefined) sent.set('x-forwarded-for', address);
      if (cookie !== '' && sent.has('session-mode')) sent.set('cookie', cookie);
      if (bearer !== undefined && url === `${root}/auth/session`) {
        sent.set('authorization', `Bearer ${bearer}`);
      }
      // Some frameworks keep responses of `fetch`, unless they are told not to.
      const uncached = { cache: 'no-store', ...init, headers: sent };
      const response = await send(url, uncached, { headers, address });
      for (const line of response.headers.getSetCookie()) responseHeaders?.append('set-cookie', line);
      return response;
    };
    /** Instead of an exchange, whose response could be lost, the backend issues an access token. */
    const renew: Fetch = async (_url, { signal = null }) => {
      if (bearer !== undefined || cookie === '') return tokenAnswer(bearer);
      const init = { method: 'POST', headers: { 'session-mode': 'cookie' }, signal };
      return pass(`${root}/auth/session/token`, init);
    };
    return createClient({
      baseUrl: root,
      storage: 'cookie',
      fetch: (url, init) => (url === `${root}/auth/refresh` ? renew : pass)(url, init),
    });
  };

  const isSignedOut = (visit: Visit): boolean => {
    const { bearer, cookie } = credentialsIn(headersOf(visit));
    return bearer === undefined && cookie === '';
  };
  return {
    client,
    getSession: async (visit, info) => (isSignedOut(visit) ? null : client(visit, info).getSession()),
    getAccessToken: async (visit, info) => (isSignedOut(visit) ? null : client(visit, info).getAccessToken()),
  };
}

const SESSION_COOKIE = /^(__Host-)?saas-session=/;

/** With what a visitor is signed in. The backend gets no other cookie of the application. */
function credentialsIn(headers: Headers): { bearer: string | undefined; cookie: string } {
  const cookies = (headers.get('cookie') ?? '').split(/; */).filter((one) => SESSION_COOKIE.test(one));
  return {
    bearer: /^bearer +(\S+) *$/i.exec(headers.get('authorization') ?? '')?.[1],
    cookie: cookies.join('; '),
  };
}

/** Those that are used, in one form. */
function headersOf(visit: Visit): Headers {
  const { headers: inner } = visit as { headers?: unknown };
  const given = (typeof inner === 'object' && inner !== null ? inner : visit) as VisitHeaders;
  const found = new Headers();
  for (const name of [...PASSED, 'host', 'cookie', 'authorization']) {
    const value = isRecord(given)
      ? Object.entries(given).find(([key]) => key.toLowerCase() === name)?.[1]
      : given.get(name);
    if (value) found.set(name, typeof value === 'string' ? value : value.join(', '));
  }
  return found;
}

const isRecord = (headers: VisitHeaders): headers is Exclude<VisitHeaders, { get(name: string): unknown }> =>
  typeof headers.get !== 'function';

/** How the backend answers a refresh. */
const tokenAnswer = (accessToken: string | undefined): Response =>
  accessToken === undefined
    ? Response.json({ success: false, error: { code: 'INVALID_REFRESH_TOKEN' } }, { status: 401 })
    : Response.json({ success: true, data: { accessToken, expiresIn: BEARER_SECONDS } });

/** The backend decides how long an access token is valid. */
const BEARER_SECONDS = 60;

import { createVisitorSessions, type VisitorSessions } from './backend.js';

/** Who is signed in, for a server of yours beside saas-backend: on Node.js, Bun, Deno and edge runtimes. */

export type { Visit, VisitHeaders, VisitInfo, VisitorSessions } from './backend.js';

/** How a server reaches the backend. */
export interface BackendOptions {
  /** The address of the API: `https://app.example.com/api`, or one in your network. */
  baseUrl: string;
  /**
   * The `CALLER_SECRET` of the backend: its limits, audit and sessions then have the address of the visitor instead of that of your
   * server. The address is `address` of a call or else the last one in `X-Forwarded-For`, which your proxy must set.
   */
  callerSecret?: string | undefined;
  /** Replaces `fetch`. */
  fetch?: typeof fetch | undefined;
}

/**
 * Connects a server that renders pages to a backend in another process. Create it once; it has no state.
 *
 * @throws TypeError for an address that is not absolute
 */
export function connectBackend(options: BackendOptions): VisitorSessions {
  const { callerSecret, fetch: send = fetch } = options;
  const baseUrl = new URL(options.baseUrl).href;
  return createVisitorSessions(baseUrl, async (url, init, { headers, address }) => {
    if (callerSecret !== undefined && url.startsWith(baseUrl)) {
      const visitor = address ?? headers.get('x-forwarded-for')?.split(',').at(-1)?.trim();
      if (!visitor) throw new TypeError(UNKNOWN_ADDRESS);
      init.headers.set('x-caller-secret', callerSecret);
      init.headers.set('x-end-user-ip', visitor);
    }
    return send(url, init);
  });
}

const UNKNOWN_ADDRESS =
  'The address of the visitor is unknown: the request has no X-Forwarded-For, and the call no address. Pass the one that your ' +
  'framework states: getSession(request, { address }).';

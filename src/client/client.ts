import { type ClientMethods, OPERATIONS } from '../../generated/client/operations.js';
import type { OwnOrganization, Session, User } from '../../generated/client/schemas.js';
import {
  type ApiResponse,
  type CallOptions,
  contentOf,
  exchange,
  type Fetch,
  unlessAborted,
} from './exchange.js';
import { createSession, type LogoutScope, type SessionChange, type SessionEnd } from './session.js';
import { createSignIn, type PasskeyMethods, type SignInMethods } from './sign-in.js';
import {
  mayHaveCookie,
  memoryStore,
  sessionOf,
  storageStore,
  type TokenStorage,
  type Tokens,
  tokensOf,
} from './storage.js';

/** The options of a client. */
export interface ClientOptions {
  /** The address of the API: `https://app.example.com/api`, or `/api` in a page of the same origin. */
  baseUrl: string;
  /**
   * Where the tokens are. `memory` (default): in this client, until the page is left. A storage such as `localStorage`: shared
   * by the tabs of a browser. `cookie`: the refresh token is in a cookie that no script can read.
   */
  storage?: 'memory' | 'cookie' | TokenStorage | undefined;
  /** The name of the session in the storage. */
  storageKey?: string | undefined;
  /** Replaces `fetch`. */
  fetch?: Fetch | undefined;
  /** Milliseconds after which a call rejects with `TIMEOUT`. Default: 30,000. `client.fetch` has no limit of its own. */
  timeout?: number | undefined;
  /** Other origins whose routes get the access token from `client.fetch`, beside that of `baseUrl`. */
  origins?: readonly string[] | undefined;
  /** Called once when the session has ended, in each tab. */
  onSessionEnd?: ((end: SessionEnd) => void) | undefined;
}

/** Who is signed in. */
export interface ActiveSession {
  /** The user, with the plan, the roles and the metadata. */
  user: User;
  /** When and how the user has signed in. */
  session: Session;
  /** The organization that is active in the session; null for none. */
  organization: OwnOrganization | null;
  /** The features of the plans of the active organization, or else of the user. */
  features: string[];
}

/** A client of the API: one method for each operation, and requests to other routes with the same session. */
export interface SaasClient extends ClientMethods {
  /** Registration, sign-in, sessions and mailed links. */
  readonly auth: ClientMethods['auth'] & {
    /**
     * Log out. `local` (default) ends this session, `others` all other sessions of the user, `global` all. It rejects if the
     * server cannot be reached; the session then remains.
     */
    logout(body?: { scope?: LogoutScope }, options?: Pick<CallOptions, 'signal'>): Promise<void>;
  };
  /** Sign-in at other providers and with passkeys. */
  readonly signIn: SignInMethods;
  /** Passkeys that the browser creates. */
  readonly passkeys: PasskeyMethods;
  /** Who is signed in; null for a visitor, who causes no request. Calls at the same time share one request. */
  getSession(): Promise<ActiveSession | null>;
  /** Tells the client for which session a server has rendered the page, so that it notices the end of this one. */
  assumeSession(session: Pick<ActiveSession, 'session'> | null): void;
  /**
   * An access token that is valid for the next request, for WebSockets and other libraries that send it themselves. Null for a
   * visitor. Ask again for each connection.
   */
  getAccessToken(): Promise<string | null>;
  /** Calls the listener after each sign-in and each end of the session, also in other tabs. Returns the function that ends this. */
  onChange(listener: (change: SessionChange) => void): () => void;
  /**
   * `fetch` for routes of your own server, with the access token and one repetition after it has expired. `url` is relative to
   * the origin of `baseUrl`. A request whose body is a stream is not repeated.
   */
  fetch(url: string | URL, init?: RequestInit): Promise<Response>;
}

const TIMEOUT_MS = 30_000;

/** Twice this is less than the time for which the server repeats the response to a refresh. */
const REFRESH_TIMEOUT_MS = 10_000;

/** Creates a client of the API. */
export function createClient(options: ClientOptions): SaasClient {
  const { storage = 'memory', onSessionEnd, timeout = TIMEOUT_MS, origins = [] } = options;
  const here = (globalThis as { location?: { href: string } }).location?.href;
  // A page that a server renders creates its client, and calls nothing.
  const base = new URL(options.baseUrl, here ?? 'http://page.invalid');
  const root = base.href.replace(/(?<!\/)\/+$/, '');
  const key = options.storageKey ?? `saas-session ${root}`;
  const send: Fetch = options.fetch ?? ((url, init) => fetch(url, init));
  const hasCookie = storage === 'cookie';

  const call = (method: string, path: string, body: unknown, token: string | undefined, more: CallOptions) =>
    exchange(
      send,
      root + path,
      {
        method,
        headers: {
          ...((body !== undefined || (here === undefined && method !== 'GET')) && {
            'content-type': 'application/json',
          }),
          ...(token !== undefined && { authorization: `Bearer ${token}` }),
          ...(more.organization !== undefined && { 'x-organization': more.organization }),
          ...(hasCookie && path.startsWith('/auth/') && { 'session-mode': 'cookie' }),
        },
        ...(body !== undefined && { body: JSON.stringify(body) }),
        ...(hasCookie && path.startsWith('/auth/') && { credentials: 'include' as const }),
        // The cookie of the response arrives although the page is left meanwhile.
        ...(hasCookie && path === '/auth/refresh' && { keepalive: true }),
      },
      { signal: more.signal, timeout: more.timeout ?? timeout },
    );

  const listeners = new Set<(change: SessionChange) => void>([
    (change) => change.reason !== 'login' && onSessionEnd?.(change),
  ]);
  let asking: Promise<ActiveSession | null> | undefined;

  const session = createSession({
    ...{ key, hasCookie, isShared: storage !== 'memory' },
    store:
      typeof storage === 'object' ? storageStore(storage, key) : memoryStore(hasCookie ? undefined : null),
    send: (path, body) => call('POST', path, body, undefined, { timeout: REFRESH_TIMEOUT_MS }),
    onChange(change) {
      asking = undefined;
      // An error of a listener is not one of the request.
      for (const listener of listeners) queueMicrotask(() => listener(change));
    },
  });

  const readSession = async (token: string | undefined): Promise<ApiResponse> =>
    call('GET', '/auth/session', undefined, token, {});
  const sessionIn = (answer: ApiResponse) => (contentOf(answer) as { session: ActiveSession | null }).session;

  async function findSession(): Promise<ActiveSession | null> {
    if (hasCookie) {
      return session.ask(async () =>
        mayHaveCookie(base.hostname) ? sessionIn(await readSession(undefined)) : undefined,
      );
    }
    if (!(await session.current())) return null;
    // A token that is not valid any more has no session there.
    const isRefused = (answer: ApiResponse) => isTokenRefused(answer) || sessionIn(answer) === null;
    const answer = await authorized(undefined, readSession, isRefused);
    return (await session.current()) && sessionIn(answer);
  }

  /** Sends a request with the access token, and once more with a new one if the server has refused the first. */
  async function authorized<T>(
    signal: AbortSignal | null | undefined,
    request: (token: string | undefined) => Promise<T>,
    isRefused: (answer: T) => boolean | Promise<boolean>,
    canRepeat = true,
  ): Promise<T> {
    const tokens = await unlessAborted(session.current(), signal);
    const answer = await request(tokens?.accessToken);
    if (!tokens || !(await isRefused(answer))) return answer;
    await unlessAborted(session.refresh(tokens), signal);
    const next = await unlessAborted(session.current(), signal);
    // Another user may have signed in meanwhile, for whom the request was not meant.
    if (!next || !canRepeat || sessionOf(next) !== sessionOf(tokens)) return answer;
    return request(next.accessToken);
  }

  async function operate(operation: string, input: object | undefined, more: CallOptions): Promise<unknown> {
    const [method = '', template = '', access, place] = operation.split(' ');
    const given = Object.entries(input ?? {}).filter(([, value]) => value !== undefined);
    const fields = given.filter(([name]) => !template.includes(`{${name}}`));
    let path = template;
    for (const [name, value] of given) path = path.replace(`{${name}}`, encode(value));
    if (place === 'query')
      path += fields.map(([name, value], at) => `${at ? '&' : '?'}${name}=${encode(value)}`).join('');
    const request = (token: string | undefined) =>
      call(method, path, place === 'body' ? input && Object.fromEntries(fields) : undefined, token, more);
    const answer = await (access === 'public'
      ? request(undefined)
      : authorized(more.signal, request, isTokenRefused));
    const content = contentOf(answer);
    if (template === '/user/delete') await session.end('deleted');
    if (!template.startsWith('/auth/')) return content;
    const {
      accessToken,
      refreshToken,
      expiresIn = 0,
      ...others
    } = content as Partial<Tokens> & {
      expiresIn?: number;
    };
    if (accessToken === undefined) return content;
    await session.begin(tokensOf({ accessToken, refreshToken, expiresIn }));
    return others;
  }

  const groups = Object.entries(OPERATIONS).map(([group, operations]) => {
    const methods = Object.entries(operations).map(([name, operation]) => {
      const hasInput = operation.split(' ').length > 3;
      const method = (...given: object[]) =>
        operate(operation, hasInput ? given[0] : undefined, given[hasInput ? 1 : 0] ?? {});
      return [name, method];
    });
    return [group, Object.fromEntries(methods)];
  });
  const client = Object.fromEntries(groups);
  client.auth.logout = ({ scope = 'local' }: { scope?: LogoutScope } = {}, { signal }: CallOptions = {}) =>
    unlessAborted(session.logout(scope), signal);

  Object.assign(client, createSignIn(root, `${key} sign-in`, client as ClientMethods));

  client.getSession = () => {
    asking ??= findSession().finally(() => {
      asking = undefined;
    });
    return asking;
  };
  client.assumeSession = (rendered: Pick<ActiveSession, 'session'> | null) =>
    session.assume(rendered?.session.id ?? null);
  client.getAccessToken = async () => {
    if (hasCookie && !mayHaveCookie(base.hostname)) return null;
    return (await session.current())?.accessToken ?? null;
  };
  client.onChange = (listener: (change: SessionChange) => void) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  };

  client.fetch = async (input: string | URL, init: RequestInit = {}): Promise<Response> => {
    const url = new URL(input, base.origin);
    if (url.origin !== base.origin && !origins.includes(url.origin)) {
      throw new TypeError(`The access token is not for ${url.origin}: it is missing in the option origins.`);
    }
    let refused: Response | undefined;
    const request = async (token: string | undefined) => {
      refused?.body?.cancel().catch(() => {});
      const headers = new Headers(init.headers);
      if (token !== undefined) headers.set('authorization', `Bearer ${token}`);
      refused = await send(url.href, { ...init, headers });
      return refused;
    };
    const canRepeat = !isStream(init.body);
    return authorized(init.signal, request, isResponseRefused, canRepeat);
  };
  return client as SaasClient;
}

const encode = (value: unknown) => encodeURIComponent(String(value));

/** Whether a server refuses the access token, not the request (RFC 6750 §3.1). */
const isRefusal = ({ status, headers }: Pick<Response, 'status' | 'headers'>) =>
  status === 401 && /\binvalid_token\b/.test(headers.get('www-authenticate') ?? '');

const isTokenRefused = (answer: ApiResponse) => isRefusal(answer) || isExpiry(answer.status, answer.body);

/** For hosts that do not expose the header to pages of other origins. */
const isExpiry = (status: number, body: { code?: string; error?: { code?: string } }) =>
  status === 401 && (body.error?.code ?? body.code) === 'TOKEN_EXPIRED';

async function isResponseRefused(response: Response): Promise<boolean> {
  if (isRefusal(response)) return true;
  if (response.status !== 401) return false;
  const body = await response
    .clone()
    .json()
    .catch(() => null);
  return isExpiry(response.status, Object(body));
}

const isStream = (body: unknown) =>
  typeof body === 'object' && body !== null && ('getReader' in body || Symbol.asyncIterator in body);

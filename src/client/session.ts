import { SaasError, type SaasErrorCode } from './errors.js';
import { type ApiResponse, contentOf } from './exchange.js';
import { sessionOf, type TokenStore, type Tokens } from './storage.js';
import { openTabs } from './tabs.js';

/** Why a session has ended. */
export interface SessionEnd {
  /**
   * `logout`: in this or another tab. `deleted`: with the account. `revoked`: the server has refused to continue it.
   * `replaced`: another tab or page has signed in, so that the session of this page is another one.
   */
  reason: 'logout' | 'deleted' | 'revoked' | 'replaced';
  /** The answer of the server, with `revoked`. */
  code?: SaasErrorCode;
}

/** Which sessions a logout ends. */
export type LogoutScope = 'local' | 'others' | 'global';

/** The session of a client: its tokens, which one request at a time replaces. */
export interface Session {
  /** The tokens for a request; in cookie mode fetched first if this page has none yet. */
  current(): Promise<Tokens | null>;
  /** Begins a session with the tokens of a sign-in. */
  begin(tokens: Tokens): Promise<void>;
  /** Replaces these tokens, unless it was done meanwhile. @throws if the server cannot answer: the session remains */
  refresh(used: Tokens | undefined): Promise<void>;
  /** Logs out at the server. */
  logout(scope: LogoutScope): Promise<void>;
  end(reason: SessionEnd['reason']): Promise<void>;
}

export interface SessionOptions {
  /** Names the session among the tabs. */
  key: string;
  store: TokenStore;
  /** Whether the refresh token is in a cookie. */
  hasCookie: boolean;
  /** Whether other tabs have the same session. */
  isShared: boolean;
  /** Sends a request with a refresh token in its body. */
  send(path: string, body: object): Promise<ApiResponse>;
  onEnd(end: SessionEnd): void;
}

/** With these codes, the server says that a session has ended. Any other error says nothing about the session. */
const ENDED = ['INVALID_REFRESH_TOKEN', 'REFRESH_TOKEN_REUSED', 'ACCOUNT_SUSPENDED', 'UNAUTHENTICATED'];

interface Message extends Partial<SessionEnd> {
  /** The session that has ended. */
  ended?: string | undefined;
  /** In cookie mode: the new access token of the session. */
  accessToken?: string;
}

export function createSession({ key, store, hasCookie, isShared, send, onEnd }: SessionOptions): Session {
  /** The session that the application knows of. */
  let known: string | undefined;
  let refreshing: Promise<void> | undefined;
  /** Odd during a write: what is read before its end may be from before or after it. */
  let writes = 0;

  /** Notices that another tab has ended or replaced the session. */
  const notice = (tokens: Tokens | null | undefined, end: SessionEnd): void => {
    const before = known;
    known = tokens ? sessionOf(tokens) : undefined;
    if (before === undefined || before === known) return;
    // An error of the callback is not one of the request.
    queueMicrotask(() => onEnd(known === undefined ? end : { reason: 'replaced' }));
  };

  const load = async (): Promise<Tokens | null | undefined> => {
    const before = writes;
    const tokens = await store.load();
    if (before === writes && before % 2 === 0) notice(tokens, { reason: 'logout' });
    return tokens;
  };

  const write = async (tokens: Tokens | null, onWritten: () => void): Promise<void> => {
    writes++;
    try {
      await store.save(tokens);
      onWritten();
    } finally {
      writes++;
    }
  };

  const onMessage = async ({ ended, accessToken, reason = 'logout', code }: Message): Promise<void> => {
    if (hasCookie && accessToken !== undefined) await store.save({ accessToken });
    if (ended === undefined) await load();
    else if (ended === known) {
      if (hasCookie) await store.save(null);
      notice(null, { reason, ...(code && { code }) });
    }
  };

  const tabs = openTabs(key, isShared, (message) => {
    onMessage(message).catch(() => {});
  });

  const keep = async (tokens: Tokens, onWritten: () => void): Promise<void> => {
    await write(tokens, onWritten);
    tabs.tell(hasCookie ? { accessToken: tokens.accessToken } : {});
  };

  const drop = async (end: SessionEnd): Promise<void> => {
    const ended = known;
    await write(null, () => notice(null, end));
    tabs.tell({ ended, ...end });
  };

  /** Runs with the newest tokens while no other tab changes them. */
  const withTokens = <T>(run: (tokens: Tokens | null | undefined) => Promise<T>): Promise<T> =>
    tabs.exclusive(async () => {
      if (hasCookie) await tabs.settle();
      return run(await load());
    });

  /** A lost response is asked for again at once: the server repeats it for a short time only. */
  const renew = async (body: object): Promise<ApiResponse> => {
    try {
      return await send('/auth/refresh', body);
    } catch {
      return send('/auth/refresh', body);
    }
  };

  const replace = async (tokens: Tokens | null | undefined): Promise<void> => {
    try {
      const answer = await renew(hasCookie ? {} : { refreshToken: tokens?.refreshToken });
      const { accessToken, refreshToken } = contentOf(answer) as Required<Tokens>;
      const next = hasCookie ? { accessToken } : { accessToken, refreshToken };
      await keep(next, () => notice(next, { reason: 'logout' }));
    } catch (error) {
      if (!isEnd(error)) throw error;
      await drop({ reason: 'revoked', code: error.code });
    }
  };

  const session: Session = {
    async current() {
      const tokens = await load();
      if (tokens !== undefined) return tokens;
      await session.refresh(undefined);
      return (await load()) ?? null;
    },

    begin: (tokens) =>
      tabs.exclusive(() =>
        keep(tokens, () => {
          known = sessionOf(tokens);
        }),
      ),

    refresh(used) {
      refreshing ??= withTokens(async (tokens) => {
        // Another tab has refreshed, signed in or logged out.
        if (tokens?.accessToken === used?.accessToken && tokens !== null) await replace(tokens);
      }).finally(() => {
        refreshing = undefined;
      });
      return refreshing;
    },

    logout: (scope) =>
      withTokens(async (tokens) => {
        try {
          if (tokens || hasCookie) {
            contentOf(await send('/auth/logout', { scope, ...tokens, accessToken: undefined }));
          }
        } catch (error) {
          if (scope === 'others' || !isEnd(error)) throw error;
        }
        if (scope !== 'others') await drop({ reason: 'logout' });
      }),

    end: (reason) => tabs.exclusive(() => drop({ reason })),
  };
  return session;
}

const isEnd = (error: unknown): error is SaasError =>
  error instanceof SaasError && ENDED.includes(error.code) && (error.status === 401 || error.status === 403);

import { SaasError, type SaasErrorCode } from './errors.js';
import { type ApiResponse, contentOf } from './exchange.js';
import { sessionOf, type TokenStore, type Tokens, tokensOf } from './storage.js';
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

/** What has happened to the session. `login`: a sign-in in this or another tab. */
export type SessionChange = { reason: 'login' } | SessionEnd;

/** Which sessions a logout ends. */
export type LogoutScope = 'local' | 'others' | 'global';

/** The session of a client: its tokens, which one request at a time replaces. */
export interface Session {
  /** The tokens for a request, replaced before they expire; in cookie mode fetched first if this page has none yet. */
  current(): Promise<Tokens | null>;
  /**
   * In cookie mode: asks for the session of the cookie, and learns whether it has ended or is another one.
   * @param ask null if the server says that there is none, undefined if the cookie is gone
   */
  ask<T extends { session: { id: string } }>(ask: () => Promise<T | null | undefined>): Promise<T | null>;
  /** Begins a session with the tokens of a sign-in. */
  begin(tokens: Tokens): Promise<void>;
  /** Replaces these tokens, unless it was done meanwhile. @throws if the server cannot answer: the session remains */
  refresh(used: Tokens | undefined): Promise<void>;
  /** Logs out at the server. */
  logout(scope: LogoutScope): Promise<void>;
  end(reason: SessionEnd['reason']): Promise<void>;
  /** The session that a server has rendered the page for. */
  assume(id: string | null): void;
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
  onChange(change: SessionChange): void;
}

/** With these codes, the server says that a session has ended. Any other error says nothing about the session. */
const ENDED = ['INVALID_REFRESH_TOKEN', 'REFRESH_TOKEN_REUSED', 'ACCOUNT_SUSPENDED', 'UNAUTHENTICATED'];

interface Message extends Partial<SessionEnd> {
  /** The session that has ended. */
  ended?: string | null | undefined;
  /** In cookie mode: the new tokens of the session. */
  tokens?: Tokens;
  /** Whether a session has begun. */
  isNew?: boolean;
}

export function createSession({ key, store, hasCookie, isShared, send, onChange }: SessionOptions): Session {
  /** The session that the application knows of; null if it knows that there is none. */
  let known: string | null | undefined;
  let refreshing: Promise<void> | undefined;
  /** Odd during a write: what is read before its end may be from before or after it. */
  let writes = 0;

  /** Notices that another tab has begun, ended or replaced the session. */
  const notice = (tokens: Tokens | null | undefined, end: SessionEnd, isTold = false): void => {
    if (tokens === undefined) return;
    const before = known;
    known = tokens && sessionOf(tokens);
    if (known === before || (before === undefined && !isTold)) return;
    onChange(known === null ? end : beginning(before));
  };

  const load = async (isNew = false): Promise<Tokens | null | undefined> => {
    const before = writes;
    const tokens = await store.load();
    if (before === writes && before % 2 === 0) notice(tokens, { reason: 'logout' }, isNew);
    return tokens;
  };

  const write = async (tokens: Tokens | null | undefined, onWritten: () => void): Promise<void> => {
    writes++;
    try {
      await store.save(tokens);
      onWritten();
    } finally {
      writes++;
    }
  };

  const onMessage = async ({ ended, tokens, isNew, reason, code }: Message): Promise<void> => {
    if (tokens) await store.save(tokens);
    // A tab that has not asked yet does not know which session it has ended, or has.
    if (reason && (ended === known || (hasCookie && (!ended || known === undefined)))) {
      if (hasCookie) await store.save(null);
      notice(null, { reason, ...(code && { code }) }, true);
    } else await load(isNew);
  };

  const tabs = openTabs(key, isShared, (message) => {
    onMessage(message).catch(() => {});
  });

  const keep = async (tokens: Tokens, onWritten: () => void, isNew = false): Promise<void> => {
    await write(tokens, onWritten);
    tabs.tell({ isNew, ...(hasCookie && { tokens }) });
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
      const next = tokensOf(contentOf(answer) as Parameters<typeof tokensOf>[0]);
      await keep(next, () => notice(next, { reason: 'logout' }));
    } catch (error) {
      if (!isEnd(error)) throw error;
      await drop({ reason: 'revoked', code: error.code });
    }
  };

  const session: Session = {
    async current() {
      const tokens = await load();
      if (tokens === null || (tokens && tokens.renewAt > Date.now())) return tokens;
      await session.refresh(tokens);
      return (await load()) ?? null;
    },

    async ask(ask) {
      const [before, count] = [known, writes];
      const found = await ask();
      const id = found ? found.session.id : null;
      // What has begun or ended meanwhile is newer than the answer.
      if (before !== known || count !== writes || id === before) return found ?? null;
      if (!found && before)
        await drop(
          found === null ? { reason: 'revoked', code: 'INVALID_REFRESH_TOKEN' } : { reason: 'logout' },
        );
      else {
        // The next request fetches the tokens of the session.
        await write(found && undefined, () => {
          known = id;
          if (before !== undefined) onChange(beginning(before));
        });
      }
      return found ?? null;
    },

    begin: (tokens) =>
      tabs.exclusive(() =>
        keep(
          tokens,
          () => {
            known = sessionOf(tokens);
            onChange({ reason: 'login' });
          },
          true,
        ),
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
            contentOf(await send('/auth/logout', { scope, refreshToken: tokens?.refreshToken }));
          }
        } catch (error) {
          if (scope === 'others' || !isEnd(error)) throw error;
        }
        if (scope !== 'others') await drop({ reason: 'logout' });
      }),

    end: (reason) => tabs.exclusive(() => drop({ reason })),

    assume(id) {
      if (id === known) return;
      known = id;
      // Tokens of another session, or that there is none, are not known any more.
      if (hasCookie && id !== null) void store.save(undefined);
    },
  };
  return session;
}

const beginning = (before: string | null | undefined): SessionChange => ({
  reason: typeof before === 'string' ? 'replaced' : 'login',
});

const isEnd = (error: unknown): error is SaasError =>
  error instanceof SaasError && ENDED.includes(error.code) && (error.status === 401 || error.status === 403);

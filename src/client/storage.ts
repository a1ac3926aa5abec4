/** The tokens of a session and where the client keeps them. */

export interface Tokens {
  accessToken: string;
  /** Absent if it is in a cookie. */
  refreshToken?: string | undefined;
  /** From when on the access token is replaced before it is used, by the clock of this device. */
  renewAt: number;
}

/** The longest time before the end of an access token at which it is replaced. */
const MARGIN_MS = 30_000;

/** The tokens in the answer to a sign-in or a refresh; `expiresIn` are seconds. */
export function tokensOf({ expiresIn, ...tokens }: Omit<Tokens, 'renewAt'> & { expiresIn: number }): Tokens {
  const lifetime = expiresIn * 1000;
  return { ...tokens, renewAt: Date.now() + lifetime - Math.min(MARGIN_MS, lifetime / 2) };
}

/** What `localStorage` and `sessionStorage` have in common with asynchronous storages of other platforms. */
export interface TokenStorage {
  /** The value of a key; null or undefined if there is none. */
  getItem(key: string): string | null | undefined | Promise<string | null | undefined>;
  /** Stores a value. */
  setItem(key: string, value: string): unknown;
  /** Removes a value, if there is one. */
  removeItem(key: string): unknown;
}

/** Keeps tokens. `undefined`: it is unknown whether there is a session, because only the server can read the cookie. */
export interface TokenStore {
  load(): Promise<Tokens | null | undefined>;
  save(tokens: Tokens | null | undefined): Promise<void>;
}

/** Keeps the tokens in this object. */
export function memoryStore(initial: null | undefined): TokenStore {
  let held: Tokens | null | undefined = initial;
  return {
    load: async () => held,
    async save(tokens) {
      held = tokens;
    },
  };
}

/** Keeps the tokens in a storage, and reads them again each time: another tab may have replaced them. */
export function storageStore(storage: TokenStorage, key: string): TokenStore {
  return {
    load: async () => parse(await storage.getItem(key)),
    async save(tokens) {
      await (tokens ? storage.setItem(key, JSON.stringify(tokens)) : storage.removeItem(key));
    },
  };
}

/** Null for a value that this client has not written. */
function parse(text: string | null | undefined): Tokens | null {
  try {
    const { accessToken, refreshToken, renewAt } = JSON.parse(text ?? 'null') ?? {};
    return typeof accessToken === 'string' && typeof refreshToken === 'string'
      ? { accessToken, refreshToken, renewAt: Number(renewAt) || 0 }
      : null;
  } catch {
    return null;
  }
}

/** The session that an access token belongs to. The server decides whether the token is valid. */
export function sessionOf({ accessToken }: Tokens): string {
  try {
    const [, claims = ''] = accessToken.split('.');
    return JSON.parse(atob(claims.replace(/-/g, '+').replace(/_/g, '/'))).sid ?? '';
  } catch {
    return '';
  }
}

/** What the server sets beside the cookie that scripts cannot read. */
const MARK = /(^|; )(__Host-)?saas-signed-in=/;

interface Page {
  location?: { hostname: string };
  document?: { cookie: string };
}

/** Whether there may be a session in the cookie. The pages of another host cannot see it: there, only the server knows. */
export function mayHaveCookie(host: string): boolean {
  const { location, document } = globalThis as Page;
  return location?.hostname !== host || !document || MARK.test(document.cookie);
}

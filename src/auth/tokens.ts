import { type Clock, toSeconds } from '../kernel/clock.js';
import { newToken, type Random, sha256 } from '../kernel/secrets.js';
import type { TokenKind } from './jwt.js';
import type { SessionDocument } from './store.js';

/** The two JSON Web Tokens of a session: what stands in them, and when they hold. */

export interface Claims {
  sub: string;
  sid: string;
  jti: string;
}

/** A token of ours, and whether its time is over. */
export interface Verdict {
  claims: Claims;
  isExpired: boolean;
}

export interface RefreshVerdict extends Verdict {
  /** When its session began, in milliseconds. */
  beganAt: number;
}

export interface SessionTokens {
  /** Seconds an access token lives. */
  readonly accessTtl: number;
  /** The identifier of a session's first refresh token. */
  firstId(): string;
  /** The identifier that follows `id`: the same for everybody who may ask, and unknown to readers of the store. */
  successorOf(sid: string, id: string): string;
  /** An access token of the session as of now. */
  access(session: SessionDocument): string;
  /** The refresh token `id` of the session; the same bytes each time. */
  refresh(session: SessionDocument, id: string): string;
  /** The access token of an Authorization header (RFC 6750 §2.1); `null` for whatever we have not signed as such. */
  verifyBearer(authorization: string): Verdict | null;
  verifyRefresh(token: string): RefreshVerdict | null;
}

interface TokenOptions {
  access: TokenKind;
  refresh: TokenKind;
  accessTtl: number;
  /** PUBLIC_URL, which in development is known when the server listens. */
  issuer(): string;
  clock: Clock;
  random: Random;
}

/** How far in the future another machine's clock may have issued a token, in seconds. */
const CLOCK_SKEW = 60;

export function createSessionTokens(options: TokenOptions): SessionTokens {
  const { access, refresh, clock, random } = options;
  const readAccess = createTokenCache((token) => readClaims(access, 'access', token));
  const readBearer = (authorization: string): Token | null => {
    const token = /^bearer +([\w-]+\.[\w-]+\.[\w-]+) *$/i.exec(authorization)?.[1];
    return token === undefined ? null : readAccess(token);
  };
  const judge = (token: Token | null): Verdict | null =>
    token && judgeToken(token, options.issuer(), toSeconds(clock.now()));

  return {
    accessTtl: options.accessTtl,
    firstId: () => newToken(random),
    // Readers of the store have `sha256(id)`. An identifier opens nothing by itself: what names it must be signed.
    successorOf: (sid, id) => sha256(`${sid} after ${id}`),

    access(session) {
      const iat = toSeconds(clock.now());
      return access.sign({
        iss: options.issuer(),
        aud: AUDIENCE.access,
        sub: session.userId,
        sid: session.id,
        jti: newToken(random),
        iat,
        exp: iat + options.accessTtl,
        token_use: 'access',
      });
    },

    refresh(session, id) {
      return refresh.sign({
        iss: options.issuer(),
        aud: AUDIENCE.refresh,
        sub: session.userId,
        sid: session.id,
        jti: id,
        iat: toSeconds(session.rotatedAt),
        exp: toSeconds(session.expiresAt),
        auth_time: toSeconds(session.createdAt),
        token_use: 'refresh',
      });
    },

    verifyBearer: (authorization) => judge(readBearer(authorization)),
    verifyRefresh(text) {
      const token = readClaims(refresh, 'refresh', text);
      const verdict = judge(token);
      if (!token || !verdict || !isTime(token.authTime)) return null;
      const { claims, isExpired } = verdict;
      return { claims, isExpired, beganAt: token.authTime * 1000 };
    },
  };
}

type Use = 'access' | 'refresh';

const AUDIENCE: Record<Use, string> = { access: 'saas-api', refresh: 'saas-refresh' };

/** What a token says, as far as it is the same for ever. */
interface Token {
  claims: Claims;
  iss: string;
  iat: number;
  exp: number;
  /** Seconds, in tokens that need it; not looked at yet. */
  authTime: unknown;
}

/** A well signed token for this use. RFC 8725: every claim is required, and of one type and value only. */
function readClaims(kind: TokenKind, use: Use, token: string): Token | null {
  const { iss, aud, sub, sid, jti, iat, exp, nbf, auth_time, token_use } = kind.verify(token) ?? {};
  const isOurs =
    typeof iss === 'string' &&
    aud === AUDIENCE[use] &&
    token_use === use &&
    isIdentifier(sub) &&
    isIdentifier(sid) &&
    isIdentifier(jti) &&
    Number.isSafeInteger(iat) &&
    Number.isSafeInteger(exp) &&
    nbf === undefined;
  if (!isOurs) return null;
  return {
    claims: { sub, sid, jti },
    iss,
    iat: iat as number,
    exp: exp as number,
    authTime: auth_time,
  };
}

/** What may be otherwise the next time. */
function judgeToken({ claims, iss, iat, exp }: Token, issuer: string, now: number): Verdict | null {
  return iss === issuer && iat <= now + CLOCK_SKEW ? { claims, isExpired: exp <= now } : null;
}

/** What the cache of access tokens may take, in bytes. */
const MAX_CACHED_BYTES = 16 * 1024 * 1024;

/** What an entry takes besides its token: the claims, a part of it, and the objects that hold them. */
const cachedBytes = (token: string): number => 2 * token.length + 512;

/**
 * Verifies each token once. Whether it is valid now, and its session, is checked every time. (The cache of the JWT
 * library would hash a token, signature and all, to find it: half of what it takes to verify one.)
 */
export function createTokenCache<T>(read: (token: string) => T | null): typeof read {
  const known = new Map<string, T>();
  let bytes = 0;
  return (token) => {
    const found = known.get(token);
    if (found) return found;
    const verified = read(token);
    if (verified === null) return null;
    bytes += cachedBytes(token);
    // A copy: a part of a string keeps the whole header in memory, with all that its client has put around the token.
    known.set(Buffer.from(token, 'latin1').toString('latin1'), verified);
    for (const [oldest] of known) {
      if (bytes <= MAX_CACHED_BYTES) break;
      known.delete(oldest);
      bytes -= cachedBytes(oldest);
    }
    return verified;
  };
}

const isTime = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

/** The store refuses to look for anything else, and a refusal would be our failure instead of the token's. */
const isIdentifier = (value: unknown): value is string =>
  typeof value === 'string' && /^[\x21-\x7e]{1,255}$/.test(value);

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
  const readBearer = remembering((authorization) => {
    const token = /^bearer +([\w.~+/-]+=*) *$/i.exec(authorization)?.[1];
    return token === undefined ? null : readClaims(access, 'access', token);
  });
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

/** Access tokens come again and again. */
const REMEMBERED = 20_000;

/**
 * Reads each header once. Whether its token holds now, and its session, is judged every time. (The cache of the JWT
 * library would hash a token, signature and all, to find it: half of what it takes to verify one.)
 */
function remembering(read: (authorization: string) => Token | null): typeof read {
  const known = new Map<string, Token>();
  return (authorization) => {
    const found = known.get(authorization);
    if (found) return found;
    const token = read(authorization);
    if (token === null) return null;
    if (known.size >= REMEMBERED) known.delete(known.keys().next().value as string);
    known.set(authorization, token);
    return token;
  };
}

const isTime = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

/** The store refuses to look for anything else, and a refusal would be our failure instead of the token's. */
const isIdentifier = (value: unknown): value is string =>
  typeof value === 'string' && /^[\x21-\x7e]{1,255}$/.test(value);

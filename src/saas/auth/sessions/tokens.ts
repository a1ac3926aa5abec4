import { type Clock, MINUTE, SECOND, toSeconds } from '../../../core/kernel/clock.js';
import { newToken, type Random, sha256 } from '../../../core/kernel/secrets.js';
import type { SessionDocument } from '../store.js';
import type { TokenKind } from './jwt.js';

/** The claims that identify a session, in access and refresh tokens alike. */
export interface SessionClaims {
  sub: string;
  sid: string;
  jti: string;
}

/** A token with a valid signature, which may have expired. */
export interface VerifiedToken {
  claims: SessionClaims;
  isExpired: boolean;
  /** Whether it was signed for the cookie of a browser. */
  isOfCookie: boolean;
}

export interface IssuedAccess {
  accessToken: string;
  expiresIn: number;
}

/** The response to a login or a refresh. */
export interface IssuedTokens extends IssuedAccess {
  refreshToken: string;
}

/** Further claims of an access token. */
export type Claims = Readonly<Record<string, unknown>> | undefined;

/** Signs and verifies the two JSON Web Tokens of a session. */
export type SessionTokens = ReturnType<typeof createSessionTokens>;

interface TokenOptions {
  accessTokens: TokenKind;
  refreshTokens: TokenKind;
  /** Seconds. */
  accessTokenTtl: number;
  /** Seconds. */
  refreshTokenTtl: number;
  /** Seconds. */
  sessionMaxAge: number;
  /** `aud` of access tokens. Default: `saas-api`. */
  jwtAccessAudience?: string | undefined;
  /** PUBLIC_URL, which in development is unknown until the server listens. */
  issuer(): string;
  clock: Clock;
  random: Random;
}

/** How long an operator acts as a user, whatever is refreshed. */
const IMPERSONATION_MS = 30 * MINUTE;

/** How far in the future a token may have been issued, because the clocks of servers differ. */
const MAX_FUTURE_ISSUE_SECONDS = 60;

export function createSessionTokens(options: TokenOptions) {
  const { accessTokens: access, refreshTokens: refresh, clock, random } = options;
  const audience = { access: options.jwtAccessAudience ?? 'saas-api', refresh: 'saas-refresh' };
  const readAccess = createTokenCache((token) =>
    parseToken(access, token, { use: 'access', audience: audience.access }),
  );
  const parseAccessToken = (authorization: string): ParsedToken | null => {
    const token = /^bearer +([\w-]+\.[\w-]+\.[\w-]+) *$/i.exec(authorization)?.[1];
    return token === undefined ? null : readAccess(token);
  };
  /** Validates the issuer and the times, which the cache does not cover. */
  const validate = (token: ParsedToken | null): VerifiedToken | null => {
    const now = toSeconds(clock.now());
    if (token?.iss !== options.issuer() || token.iat > now + MAX_FUTURE_ISSUE_SECONDS) return null;
    return { claims: token.claims, isExpired: token.exp <= now, isOfCookie: token.isOfCookie };
  };

  /** In seconds. That of an operator who acts as the user ends with the session, also for APIs that only verify tokens. */
  const accessLifetime = ({ impersonator, expiresAt }: SessionDocument): number => {
    const left = impersonator ? toSeconds(expiresAt) - toSeconds(clock.now()) : Number.POSITIVE_INFINITY;
    return Math.min(options.accessTokenTtl, left);
  };

  /** Signs an access token that is issued now. @param claims further ones, which never replace those of a session */
  const signAccess = (session: SessionDocument, claims: Claims): string => {
    const iat = toSeconds(clock.now());
    return access.sign({
      ...claims,
      iss: options.issuer(),
      aud: audience.access,
      sub: session.userId,
      // RFC 8693 §4.1
      ...(session.impersonator && { act: { sub: session.impersonator.userId } }),
      sid: session.id,
      jti: newToken(random),
      iat,
      exp: iat + accessLifetime(session),
      token_use: 'access',
    });
  };

  /** Signs the refresh token `id` of the session; the result is deterministic. */
  const signRefresh = (session: SessionDocument, id: string): string =>
    refresh.sign({
      iss: options.issuer(),
      aud: audience.refresh,
      sub: session.userId,
      sid: session.id,
      jti: id,
      iat: toSeconds(session.rotatedAt),
      exp: toSeconds(session.expiresAt),
      auth_time: toSeconds(session.createdAt),
      token_use: 'refresh',
    });

  /** @param claims further ones, which never replace those of a session */
  const issueAccess = (session: SessionDocument, claims?: Claims): IssuedAccess => ({
    accessToken: signAccess(session, claims),
    expiresIn: accessLifetime(session),
  });

  return {
    /** Lifetime of an access token in seconds. */
    accessTtl: options.accessTokenTtl,
    /** How long a session lasts without a use, in seconds. */
    refreshTtl: options.refreshTokenTtl,
    issueAccess,
    /**
     * A refresh token, for the cookie of a browser: there it does not expire before the session must end, so that the store alone decides
     * how long the session goes on, and a use needs no other cookie.
     */
    forCookie(refreshToken: string): string {
      const claims = refresh.verify(refreshToken);
      if (!claims) throw new Error('Only a refresh token that was issued is kept in a cookie.');
      const exp = (claims['auth_time'] as number) + options.sessionMaxAge;
      return refresh.sign({ ...claims, exp, kept_in: COOKIE });
    },
    /** When the refresh token of a session expires that is issued now. */
    refreshExpiry({ createdAt, impersonator }: { createdAt: number; impersonator?: unknown }): number {
      const age = Math.min(
        options.sessionMaxAge * SECOND,
        impersonator ? IMPERSONATION_MS : Number.POSITIVE_INFINITY,
      );
      return Math.min(clock.now() + options.refreshTokenTtl * SECOND, createdAt + age);
    },
    /** @param claims further ones of the access token, which never replace those of a session */
    issue: (session: SessionDocument, refreshId: string, claims?: Claims): IssuedTokens => ({
      ...issueAccess(session, claims),
      refreshToken: signRefresh(session, refreshId),
    }),
    /** Returns the identifier of the first refresh token of a session. */
    newRefreshId: (): string => newToken(random),
    /**
     * Derives the identifier that follows `id`: deterministic, and not derivable from stored data.
     * The store contains `sha256(id)` only, and an identifier is useless outside a signed token.
     */
    nextRefreshId: (sid: string, id: string): string => sha256(`${sid} after ${id}`),

    /** Verifies the access token of an Authorization header (RFC 6750 §2.1); `null` for an invalid one. */
    verifyBearer: (authorization: string): VerifiedToken | null => validate(parseAccessToken(authorization)),
    /** Verifies a refresh token; `null` for an invalid one. */
    verifyRefresh(text: string): VerifiedToken | null {
      const token = parseToken(refresh, text, { use: 'refresh', audience: audience.refresh });
      const verified = validate(token);
      return token && isTime(token.authTime) ? verified : null;
    },
  };
}

/** The claim `kept_in` of a refresh token in a cookie. */
const COOKIE = 'cookie';

/** The claims of a token with a valid signature; the times are not validated yet. */
interface ParsedToken {
  claims: SessionClaims;
  iss: string;
  iat: number;
  exp: number;
  /** Seconds, in refresh tokens; not validated yet. */
  authTime: unknown;
  isOfCookie: boolean;
}

/** Verifies the signature and requires every claim with its exact type and value (RFC 8725). */
function parseToken(
  kind: TokenKind,
  token: string,
  { use, audience }: { use: 'access' | 'refresh'; audience: string },
): ParsedToken | null {
  const { iss, aud, sub, sid, jti, iat, exp, nbf, auth_time, token_use, kept_in } = kind.verify(token) ?? {};
  const isWellFormed =
    typeof iss === 'string' &&
    aud === audience &&
    token_use === use &&
    isIdentifier(sub) &&
    isIdentifier(sid) &&
    isIdentifier(jti) &&
    Number.isSafeInteger(iat) &&
    Number.isSafeInteger(exp) &&
    nbf === undefined;
  if (!isWellFormed) return null;
  return {
    claims: { sub, sid, jti },
    iss,
    iat: iat as number,
    exp: exp as number,
    authTime: auth_time,
    isOfCookie: kept_in === COOKIE,
  };
}

const MAX_CACHED_BYTES = 16 * 1024 * 1024;

/** Estimates an entry: its token, the claims and the objects that contain them. */
const estimateBytes = (token: string): number => 2 * token.length + 512;

/**
 * Caches verified signatures; the times and the session are checked at every request. The cache of the JWT library
 * hashes the token to find it, which costs half as much as a verification.
 */
export function createTokenCache<T>(read: (token: string) => T | null): typeof read {
  const cache = new Map<string, T>();
  let bytes = 0;
  return (token) => {
    const found = cache.get(token);
    if (found) return found;
    const verified = read(token);
    if (verified === null) return null;
    bytes += estimateBytes(token);
    // A copy, because a substring keeps the whole header in memory.
    cache.set(Buffer.from(token, 'latin1').toString('latin1'), verified);
    for (const [oldest] of cache) {
      if (bytes <= MAX_CACHED_BYTES) break;
      cache.delete(oldest);
      bytes -= estimateBytes(oldest);
    }
    return verified;
  };
}

const isTime = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

/** The store rejects queries for other values, which would be a server error instead of an invalid token. */
const isIdentifier = (value: unknown): value is string =>
  typeof value === 'string' && /^[\x21-\x7e]{1,255}$/.test(value);

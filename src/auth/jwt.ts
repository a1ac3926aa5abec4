import { createHmac, createSecretKey } from 'node:crypto';
import jwt, { type FastifyJWTOptions, type JWT } from '@fastify/jwt';
import fastify from 'fastify';

/** One kind of token: signed with the first of its secrets, verified with each. */
export interface TokenKind {
  sign(claims: Record<string, unknown>): string;
  /** The claims of a token with a valid signature and type, or `null`. Whether they hold now is the caller's to judge. */
  verify(token: string): Claimed | null;
}

type Claimed = Readonly<Record<string, unknown>>;

/**
 * A kind of token of media type `typ` (RFC 8725 §3.11), HS256.
 *
 * @param secret signs
 * @param previous still verify, as the first one does
 */
export async function createTokenKind(
  typ: string,
  secret: string,
  previous: readonly string[] = [],
): Promise<TokenKind> {
  const keys = await Promise.all([secret, ...previous].map((each) => loadKey(typ, each)));
  return {
    sign: signer(typ, secret),
    verify(token) {
      for (const key of keys) {
        const claims = claimsOf(key, token);
        if (claims) return claims;
      }
      return null;
    },
  };
}

/**
 * The compact serialization (RFC 7515 §7.1) of claims under a header that never changes: the very bytes of the library,
 * which takes two and a half times as long for them. Whatever can be got wrong is in verifying.
 */
function signer(typ: string, secret: string): TokenKind['sign'] {
  const key = createSecretKey(Buffer.from(secret));
  const base64url = (part: object) => Buffer.from(JSON.stringify(part)).toString('base64url');
  const header = base64url({ alg: 'HS256', typ });
  return (claims) => {
    const input = `${header}.${base64url(claims)}`;
    return `${input}.${createHmac('sha256', key).update(input).digest('base64url')}`;
  };
}

/** @fastify/jwt decorates the instance it gets. A host may use it too, so ours gets one that never listens. */
async function loadKey(typ: string, secret: string): Promise<JWT> {
  const vault = fastify();
  const options: FastifyJWTOptions = {
    secret,
    // Time is judged by our own clock.
    verify: {
      algorithms: ['HS256'],
      checkTyp: typ,
      ignoreExpiration: true,
      ignoreNotBefore: true,
    },
  };
  await vault.register(jwt, options);
  await vault.ready();
  return vault.jwt;
}

/** The library throws in a dozen ways at garbage; each of them means: not a token of ours. */
function claimsOf(key: JWT, token: string): Claimed | null {
  try {
    const claims: unknown = key.verify(token);
    return typeof claims === 'object' && claims !== null && !Array.isArray(claims)
      ? (claims as Claimed)
      : null;
  } catch {
    return null;
  }
}

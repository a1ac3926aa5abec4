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
 * @param secrets the one that signs, then those that still verify
 */
export async function createTokenKind(typ: string, secrets: readonly string[]): Promise<TokenKind> {
  const keys = await Promise.all(secrets.map((secret) => loadKey(typ, secret)));
  return {
    sign: (claims) => (keys[0] as JWT).sign(claims),
    verify(token) {
      for (const key of keys) {
        const claims = claimsOf(key, token);
        if (claims) return claims;
      }
      return null;
    },
  };
}

/** @fastify/jwt decorates the instance it gets. A host may use it too, so ours gets one that never listens. */
async function loadKey(typ: string, secret: string): Promise<JWT> {
  const vault = fastify();
  const options: FastifyJWTOptions = {
    secret,
    sign: { algorithm: 'HS256', header: { alg: 'HS256', typ } },
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

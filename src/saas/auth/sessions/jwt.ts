import jwt, { type FastifyJWTOptions, type JWT } from '@fastify/jwt';
import type { FastifyInstance } from 'fastify';
import type { SigningJwk } from '../../../core/kernel/signing-keys.js';
import type { AuthConfiguration } from '../schemas.js';
import { type Claims, openAccessKeys } from './access-keys.js';

/** One kind of token: signed with the first secret, verified with every secret. */
export interface TokenKind {
  sign(claims: Claims): string;
  /** Returns the claims of a token with a valid signature and type, or `null`. The caller validates the times. */
  verify(token: string): Claims | null;
}

export interface TokenKindOptions {
  /** Prefix of the namespaces in @fastify/jwt, unique in the host, which may have registered the plugin itself. */
  namespace: string;
  /** Media type of the token (RFC 8725 §3.11). */
  typ: string;
  /** For HS256: the first one signs, every one verifies. */
  secrets: readonly string[];
}

/**
 * Registers the two kinds of session tokens: access tokens and refresh tokens. With a key, it signs access tokens, and secrets
 * only verify those that were issued before.
 *
 * @param mount names the registration, like `saas-backend /api`; unique in the host
 */
export async function registerSessionTokenKinds(
  parent: FastifyInstance,
  mount: string,
  config: AuthConfiguration,
): Promise<{ accessTokens: TokenKind; refreshTokens: TokenKind; jwks: readonly SigningJwk[] }> {
  const kindOf = (name: string, typ: string, secrets: readonly (string | undefined)[]) =>
    registerTokenKind(parent, {
      namespace: `${mount} ${name}`,
      typ,
      secrets: secrets.filter((secret) => secret !== undefined),
    });
  const byKey = openAccessKeys('at+jwt', config.jwtAccessKey, config.jwtAccessKeyPrevious);
  const bySecret = await kindOf('access', 'at+jwt', [config.jwtAccessSecret, config.jwtAccessSecretPrevious]);
  return {
    accessTokens: {
      sign: byKey.sign ?? bySecret.sign,
      verify: (token) => byKey.verify(token) ?? bySecret.verify(token),
    },
    refreshTokens: await kindOf('refresh', 'rt+jwt', [
      config.jwtRefreshSecret,
      config.jwtRefreshSecretPrevious,
    ]),
    jwks: byKey.jwks,
  };
}

/**
 * Registers @fastify/jwt in an encapsulated context of `parent`, under one namespace for each secret. The name of its decorator is
 * our own, because the host may have `request.user` already, as @fastify/passport adds it.
 */
export async function registerTokenKind(
  parent: FastifyInstance,
  { namespace, typ, secrets }: TokenKindOptions,
): Promise<TokenKind> {
  const keys: JWT[] = [];
  await parent.register(async (fastify) => {
    for (const [index, each] of secrets.entries()) {
      const name = `${namespace} ${index}`;
      await fastify.register(jwt, {
        namespace: name,
        decoratorName: `${name} claims`,
        ...keyOptions(typ, each),
      });
      // The type of the decorator does not have the namespaces.
      keys.push(Reflect.get(fastify.jwt, name));
    }
  });
  const [signing] = keys as [JWT, ...JWT[]];
  return {
    sign: (claims) => signing.sign(claims),
    verify(token) {
      for (const key of keys) {
        const claims = verifyWith(key, token);
        if (claims) return claims;
      }
      return null;
    },
  };
}

const keyOptions = (typ: string, secret: string): FastifyJWTOptions => ({
  secret,
  sign: { algorithm: 'HS256', header: { alg: 'HS256', typ } },
  // Times are validated against the injected clock.
  verify: { algorithms: ['HS256'], checkTyp: typ, ignoreExpiration: true, ignoreNotBefore: true },
});

/** Returns `null` for any error of the library, because each means that the token is invalid. */
function verifyWith(key: JWT, token: string): Claims | null {
  try {
    const claims: unknown = key.verify(token);
    return typeof claims === 'object' && claims !== null && !Array.isArray(claims)
      ? (claims as Claims)
      : null;
  } catch {
    return null;
  }
}

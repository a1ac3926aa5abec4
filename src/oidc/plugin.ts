import formbody from '@fastify/formbody';
import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { allowOrigins } from '../kernel/cors.js';
import { access, originOf, type Scope } from '../kernel/http.js';
import { type AuthorizePluginOptions, authorizePlugin } from './authorize/plugin.js';
import { authenticateClient } from './client-auth.js';
import { oidcErrors } from './errors.js';
import type { Keys } from './keys.js';
import { providerMetadata } from './metadata.js';
import { TokenAnswer } from './schemas.js';
import type { TokenService } from './tokens.js';

export interface OidcPluginOptions extends AuthorizePluginOptions {
  tokens: TokenService;
  keys: Keys;
}

const SHORTLY = 'public, max-age=300';
const FORM_LIMIT = 16 * 1024;
const TOKEN_LIMIT = 64 * 1024;

/** Forms hold strings, each field once. */
const Fields = Type.Record(Type.String(), Type.String());

/** The endpoints of OpenID Connect. */
export async function oidcPlugin(scope: Scope, options: OidcPluginOptions): Promise<void> {
  const { tokens, keys, issuer, directory } = options;
  await allowOrigins(scope, { origins: ['*'], openByDefault: false });
  await scope.register(formbody, { bodyLimit: FORM_LIMIT });
  await scope.register(authorizePlugin, options);

  const published = access('public', { cache: SHORTLY, crossOrigin: true });
  for (const path of ['/.well-known/openid-configuration', '/.well-known/oauth-authorization-server']) {
    scope.get(path, { config: published }, async (_request, reply) => {
      reply.header('cross-origin-resource-policy', 'cross-origin');
      return providerMetadata(issuer());
    });
  }
  for (const path of ['/.well-known/jwks.json', '/jwks']) {
    scope.get(path, { config: published }, async (_request, reply) => {
      reply.header('cross-origin-resource-policy', 'cross-origin');
      return keys.jwks;
    });
  }

  scope.post(
    '/token',
    {
      config: access('client', { crossOrigin: true }),
      bodyLimit: TOKEN_LIMIT,
      schema: { body: Fields, response: { 200: TokenAnswer } },
    },
    async (request, reply) => {
      const { body, headers } = request;
      const client = await authenticateClient(headers.authorization, body, directory);
      if (!body['grant_type']) throw oidcErrors.invalid_request({ message: 'grant_type is missing.' });
      if (body['grant_type'] !== 'authorization_code') throw oidcErrors.unsupported_grant_type();
      const { code, redirect_uri: redirectUri, code_verifier: verifier } = body;
      reply.header('pragma', 'no-cache');
      return tokens.redeem(client, { code, redirectUri, verifier }, originOf(request).ip);
    },
  );

  scope.route({
    method: ['GET', 'POST'],
    url: '/userinfo',
    config: access('bearer', { crossOrigin: true }),
    handler: async (request) => {
      const token = bearerOf(request);
      if (token === undefined) {
        throw oidcErrors.invalid_token({ headers: { 'www-authenticate': 'Bearer realm="idp"' } });
      }
      return tokens.userinfo(token).catch((error: unknown) => {
        throw (error as { code?: unknown }).code === 'invalid_token'
          ? oidcErrors.invalid_token({
              headers: { 'www-authenticate': 'Bearer realm="idp", error="invalid_token"' },
            })
          : error;
      });
    },
  });
}

/** The access token in the header or in the form (RFC 6750 §2), never in the query. @throws invalid_request when in both */
function bearerOf({ headers, body }: FastifyRequest): string | undefined {
  const inHeader = /^bearer +(\S+) *$/i.exec(headers.authorization ?? '')?.[1];
  const inForm = (body as { access_token?: unknown } | undefined)?.access_token;
  if (inHeader !== undefined && inForm !== undefined) {
    throw oidcErrors.invalid_request({
      message: 'The access token is in the header and in the body. Send it once.',
    });
  }
  return inHeader ?? (typeof inForm === 'string' ? inForm : undefined);
}

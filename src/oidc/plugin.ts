import formbody from '@fastify/formbody';
import type { FastifyRequest } from 'fastify';
import type { PreparedAnswer } from '../kernel/answers.js';
import { parseBearer } from '../kernel/authorization.js';
import { openToOrigins } from '../kernel/cors.js';
import { access, originOf, type Scope } from '../kernel/http.js';
import { Type } from '../kernel/type.js';
import type { Attempt } from '../ops/throttle.js';
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
  /** Makes what answers with a text under these headers. */
  prepare(headers: Record<string, string>): PreparedAnswer;
  attempt: Attempt;
}

/** Of what anybody may read and keep for a while. Other origins need no permission beforehand for a plain GET. */
const PUBLISHED = {
  'access-control-allow-origin': '*',
  'cache-control': 'public, max-age=300',
  'content-type': 'application/json; charset=utf-8',
  'cross-origin-resource-policy': 'cross-origin',
};
const WELL_KNOWN = '/.well-known/oauth-authorization-server';
const FORM_LIMIT = 16 * 1024;
const TOKEN_LIMIT = 64 * 1024;

/** Forms hold strings, each field once. */
const Fields = Type.Record(Type.String(), Type.String());

/** The endpoints of OpenID Connect. */
export async function oidcPlugin(scope: Scope, options: OidcPluginOptions): Promise<void> {
  await scope.register(formbody, { bodyLimit: FORM_LIMIT });
  await scope.register(authorizePlugin, options);
  await openToOrigins(scope, ['*'], (open) => applicationsPlugin(open, options));
}

/** What applications ask for, from servers and from pages. */
async function applicationsPlugin(
  scope: Scope,
  { tokens, keys, issuer, directory, attempt, prepare }: OidcPluginOptions,
): Promise<void> {
  const answer = prepare(PUBLISHED);
  describeProvider(scope, ['/.well-known/openid-configuration', WELL_KNOWN], answer, issuer);
  const jwks = JSON.stringify(keys.jwks);
  publish(scope, ['/.well-known/jwks.json', '/jwks'], answer, () => jwks);

  scope.post(
    '/token',
    {
      config: access('client'),
      bodyLimit: TOKEN_LIMIT,
      schema: { body: Fields, response: { 200: TokenAnswer } },
    },
    async (request, reply) => {
      const { body } = request;
      const { authorization } = request.headers;
      const { ip } = originOf(request);
      const client = await authenticateClient({ authorization, body, ip }, { directory, attempt });
      if (!body['grant_type']) throw oidcErrors.invalid_request({ message: 'grant_type is missing.' });
      if (body['grant_type'] !== 'authorization_code') throw oidcErrors.unsupported_grant_type();
      const { code, redirect_uri: redirectUri, code_verifier: verifier } = body;
      reply.header('pragma', 'no-cache');
      return tokens.redeem(client, { code, redirectUri, verifier }, ip);
    },
  );

  scope.route({
    method: ['GET', 'POST'],
    url: '/userinfo',
    config: access('bearer'),
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

/** Where RFC 8414 §3.1 looks for an issuer with a path: before the path, and so outside of our prefix. */
export async function insertedMetadataPlugin(
  scope: Scope,
  { issuer, prepare }: Pick<OidcPluginOptions, 'issuer' | 'prepare'>,
): Promise<void> {
  describeProvider(scope, [WELL_KNOWN + new URL(issuer()).pathname], prepare(PUBLISHED), issuer);
}

function describeProvider(scope: Scope, paths: string[], answer: PreparedAnswer, issuer: () => string): void {
  // Development learns its issuer when the server listens.
  let known = { issuer: '', text: '' };
  publish(scope, paths, answer, () => {
    const current = issuer();
    if (known.issuer !== current)
      known = { issuer: current, text: JSON.stringify(providerMetadata(current)) };
    return known.text;
  });
}

/** Documents that are asked for often: their text is at hand. */
function publish(scope: Scope, paths: string[], answer: PreparedAnswer, text: () => string): void {
  for (const path of paths) {
    scope.get(path, { config: access('public', { cors: false, prepared: true }) }, (request, reply) =>
      answer(request, reply, text()),
    );
  }
}

/** The access token in the header or in the form (RFC 6750 §2), never in the query. @throws invalid_request when in both */
function bearerOf({ headers, body }: FastifyRequest): string | undefined {
  const inHeader = parseBearer(headers.authorization);
  const inForm = (body as { access_token?: unknown } | undefined)?.access_token;
  if (inHeader !== undefined && inForm !== undefined) {
    throw oidcErrors.invalid_request({
      message: 'The access token is in the header and in the body. Send it once.',
    });
  }
  return inHeader ?? (typeof inForm === 'string' ? inForm : undefined);
}

import formbody from '@fastify/formbody';
import { registerCors } from '../http/cors.js';
import { access, type Scope } from '../http/scope.js';
import { type AccountPluginOptions, accountPlugin } from './account.js';
import { type AuthorizePluginOptions, authorizePlugin } from './authorize/plugin.js';
import type { Keys } from './keys.js';
import { type LogoutPluginOptions, logoutPlugin } from './logout.js';
import { providerMetadata } from './metadata.js';
import type { Directory } from './model.js';
import { introspectionPlugin, type TokensPluginOptions, tokensPlugin } from './tokens/plugin.js';

export interface OidcPluginOptions
  extends AuthorizePluginOptions,
    LogoutPluginOptions,
    AccountPluginOptions,
    TokensPluginOptions {
  directory: Directory;
  keys: Keys;
}

/** Of documents that every origin may read and cache. A plain GET needs no preflight. */
const PUBLISHED = {
  'access-control-allow-origin': '*',
  'cache-control': 'public, max-age=300',
  'content-type': 'application/json; charset=utf-8',
  'cross-origin-resource-policy': 'cross-origin',
};
const WELL_KNOWN = '/.well-known/oauth-authorization-server';
const FORM_LIMIT = 16 * 1024;

/** The endpoints of OpenID Connect. */
export async function oidcPlugin(scope: Scope, options: OidcPluginOptions): Promise<void> {
  await scope.register(formbody, { bodyLimit: FORM_LIMIT });
  await scope.register(authorizePlugin, options);
  await scope.register(logoutPlugin, options);
  await scope.register(accountPlugin, options);
  await scope.register(introspectionPlugin, options);
  await registerCors(scope, ['*'], async (open) => {
    publishDocuments(open, options);
    await tokensPlugin(open, options);
  });
}

function publishDocuments(scope: Scope, { keys, issuer }: Pick<OidcPluginOptions, 'keys' | 'issuer'>): void {
  publishMetadata(scope, ['/.well-known/openid-configuration', WELL_KNOWN], issuer);
  const jwks = JSON.stringify(keys.jwks);
  publish(scope, ['/.well-known/jwks.json', '/jwks'], () => jwks);
}

/** Where RFC 8414 §3.1 looks for an issuer with a path: before the path, and so outside of our prefix. */
export async function insertedMetadataPlugin(
  scope: Scope,
  { issuer }: Pick<OidcPluginOptions, 'issuer'>,
): Promise<void> {
  publishMetadata(scope, [WELL_KNOWN + new URL(issuer()).pathname], issuer);
}

function publishMetadata(scope: Scope, paths: string[], issuer: OidcPluginOptions['issuer']): void {
  // In development the issuer is known only once the server listens.
  let known = { issuer: '', text: '' };
  const text = () => {
    const current = issuer();
    if (known.issuer !== current)
      known = { issuer: current, text: JSON.stringify(providerMetadata(current)) };
    return known.text;
  };
  publish(scope, paths, text);
}

/** Documents that are requested often, so their text is serialized once. */
function publish(scope: Scope, paths: string[], text: () => string): void {
  for (const path of paths) {
    scope.get(path, { config: access('public', { cors: false, unmetered: true }) }, (_request, reply) =>
      reply.headers(PUBLISHED).send(text()),
    );
  }
}

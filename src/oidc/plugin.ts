import formbody from '@fastify/formbody';
import type { PreparedAnswer } from '../kernel/answers.js';
import { openToOrigins } from '../kernel/cors.js';
import { access, type Scope } from '../kernel/http.js';
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
  /** Makes what answers with a text under these headers. */
  prepare(headers: Record<string, string>, text: () => string): PreparedAnswer;
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

/** The endpoints of OpenID Connect. */
export async function oidcPlugin(scope: Scope, options: OidcPluginOptions): Promise<void> {
  await scope.register(formbody, { bodyLimit: FORM_LIMIT });
  await scope.register(authorizePlugin, options);
  await scope.register(logoutPlugin, options);
  await scope.register(accountPlugin, options);
  await scope.register(introspectionPlugin, options);
  await openToOrigins(scope, ['*'], async (open) => {
    publishDocuments(open, options);
    await tokensPlugin(open, options);
  });
}

function publishDocuments(
  scope: Scope,
  { keys, issuer, prepare }: Pick<OidcPluginOptions, 'keys' | 'issuer' | 'prepare'>,
): void {
  describeProvider(scope, ['/.well-known/openid-configuration', WELL_KNOWN], { issuer, prepare });
  const jwks = JSON.stringify(keys.jwks);
  publish(
    scope,
    ['/.well-known/jwks.json', '/jwks'],
    prepare(PUBLISHED, () => jwks),
  );
}

/** Where RFC 8414 §3.1 looks for an issuer with a path: before the path, and so outside of our prefix. */
export async function insertedMetadataPlugin(
  scope: Scope,
  options: Pick<OidcPluginOptions, 'issuer' | 'prepare'>,
): Promise<void> {
  describeProvider(scope, [WELL_KNOWN + new URL(options.issuer()).pathname], options);
}

function describeProvider(
  scope: Scope,
  paths: string[],
  { issuer, prepare }: Pick<OidcPluginOptions, 'issuer' | 'prepare'>,
): void {
  // Development learns its issuer when the server listens.
  let known = { issuer: '', text: '' };
  const text = () => {
    const current = issuer();
    if (known.issuer !== current)
      known = { issuer: current, text: JSON.stringify(providerMetadata(current)) };
    return known.text;
  };
  publish(scope, paths, prepare(PUBLISHED, text));
}

/** Documents that are asked for often: their text is at hand. */
function publish(scope: Scope, paths: string[], answer: PreparedAnswer): void {
  for (const path of paths) {
    scope.get(path, { config: access('public', { cors: false, prepared: true, unmetered: true }) }, answer);
  }
}

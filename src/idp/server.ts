import { collectProblems } from '../core/config/configuration-error.js';
import { serverContext } from '../core/http/host-context.js';
import { renderOAuth } from '../core/kernel/errors.js';
import { assemble, type MiddlewareServer, type Server } from '../core/server/assembly.js';
import { idpServerSchema, resolveServer, type ServerOptions, splitOptions } from '../core/server/options.js';
import { createAppearance, createErrorRenderer } from './appearance.js';
import { type IdentityProviderOptions, type IdpConfiguration, resolveIdp } from './options.js';
import { mountIdp } from './plugin.js';

/** The options of the identity provider as a server. */
export interface CreateIdentityServerOptions extends IdentityProviderOptions, ServerOptions {
  /** Whether the server has a `middleware` to mount in another application. Default `false`. */
  middleware?: boolean;
}

/**
 * The identity provider as a server.
 *
 * @throws ConfigurationError naming every problem of the configuration
 */
export function createIdentityServer(
  options: CreateIdentityServerOptions & { middleware: true },
): MiddlewareServer<IdpConfiguration>;
export function createIdentityServer(options?: CreateIdentityServerOptions): Server<IdpConfiguration>;
export function createIdentityServer(
  options: CreateIdentityServerOptions = {},
): Server<IdpConfiguration> | MiddlewareServer<IdpConfiguration> {
  const { middleware = false, ...rest } = options;
  const [own, given] = splitOptions(idpServerSchema, rest);
  const [server, idp] = collectProblems(
    'idp',
    () => resolveServer('idp', idpServerSchema, own, given),
    () => resolveIdp(given),
  );
  const { prefix, random } = idp.runtime;
  const hostContext = serverContext(idp.config.values.publicUrl, server.values.port, prefix);
  const appearance = createAppearance(idp.config.values, hostContext.publicUrl.get);
  // Below a prefix, the metadata is also served outside of it (RFC 8414 §3.1).
  const { pathname } = new URL(hostContext.publicUrl.get());
  const outside = prefix === '' ? [] : [`/.well-known/oauth-authorization-server${pathname}`];
  return assemble({
    server,
    product: 'idp',
    configuration: idp.config,
    random,
    hostContext,
    mount: (app) => mountIdp(app, idp, { hostContext, ...appearance }),
    renderError: createErrorRenderer(appearance.pages),
    renderPlainError: renderOAuth,
    wrapHealth: (state) => state,
    mountPoints: middleware ? [prefix, ...outside] : undefined,
  });
}

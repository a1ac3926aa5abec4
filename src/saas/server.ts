import { collectProblems } from '../core/config/configuration-error.js';
import { mountProblem } from '../core/config/public-url.js';
import { metadataPath } from '../core/http/authorization.js';
import { serverContext } from '../core/http/host-context.js';
import { ok } from '../core/http/schemas.js';
import { renderEnvelope } from '../core/kernel/errors.js';
import { assemble, type MiddlewareServer, type Server } from '../core/server/assembly.js';
import { resolveServer, type ServerOptions, saasServerSchema, splitOptions } from '../core/server/options.js';
import { type ConnectGuards, createConnectGuards } from './connect-guards.js';
import { resolveSaas, type SaasBackendOptions, type SaasConfiguration } from './options.js';
import { mountSaas } from './plugin.js';
import { CHANGE_PASSWORD_PATH } from './routes.js';

/** The options of the SaaS backend as a server. */
export interface CreateServerOptions extends SaasBackendOptions, ServerOptions {
  /** Whether to provide `middleware` for mounting in another application. Default `false`. */
  middleware?: boolean;
}

/** The SaaS backend, with guards for the other routes of an application. */
export interface SaasServer extends Server<SaasConfiguration>, ConnectGuards {}

/** The SaaS backend, with guards and `middleware` for mounting in another application. */
export interface SaasMiddlewareServer extends MiddlewareServer<SaasConfiguration>, ConnectGuards {}

/**
 * Creates the SaaS backend as a server.
 *
 * @throws ConfigurationError naming every problem of the configuration
 */
export function createServer(options: CreateServerOptions & { middleware: true }): SaasMiddlewareServer;
export function createServer(options?: CreateServerOptions): SaasServer;
export function createServer(options: CreateServerOptions = {}): SaasServer | SaasMiddlewareServer {
  return openServer(options).server;
}

/** A server with what a handler of requests needs to know about it. */
export function openServer(options: CreateServerOptions) {
  const { middleware = false, ...rest } = options;
  const [own, given] = splitOptions(saasServerSchema, rest);
  const [server, saas] = collectProblems(
    'saas-backend',
    () => resolveServer('saas-backend', saasServerSchema, own, given),
    () => resolveSaas(given),
  );
  const { prefix, adminPath, accountPath } = saas.runtime;
  let mountedAt: string | undefined;
  /** Those that routes of the application state for agents. */
  const agentScopes = new Set<string>();
  const { agentResource } = saas.config.values;
  const hostContext = {
    ...serverContext(saas.config.values.publicUrl, server.values.port),
    mountedAt: () => mountedAt ?? prefix,
  };
  const mountPoints: [string, ...string[]] = [
    prefix,
    ...(adminPath === false ? [] : [adminPath]),
    ...(saas.config.values.accountPages ? [accountPath, CHANGE_PASSWORD_PATH] : []),
    ...(agentResource === undefined ? [] : [metadataPath(agentResource)]),
  ];
  const assembled = assemble({
    server,
    product: 'saas-backend',
    configuration: saas.config,
    random: saas.runtime.random,
    hostContext,
    mount: (app) => mountSaas(app, saas, { hostContext, agentScopes }),
    renderError: (error, _request, requestId) => renderEnvelope(error, requestId),
    renderPlainError: renderEnvelope,
    wrapHealth: ok,
    onMount(path) {
      // Mailed links contain the path, so the first one is kept, and patterns are ignored.
      if (mountProblem(path) === null) mountedAt ??= path;
    },
    mountPoints: middleware ? mountPoints : undefined,
  });
  return {
    server: {
      ...assembled,
      ...createConnectGuards({ app: assembled.fastify, hostContext, saas, agentScopes }),
    },
    mountPoints,
    publicUrl: hostContext.publicUrl,
    production: saas.config.production,
    isProxyTrusted: server.values.trustProxy !== false,
  };
}

import { gatherProblems } from './kernel/configuration-error.js';
import { renderEnvelope } from './kernel/errors.js';
import { mountProblem } from './kernel/public-url.js';
import { ok } from './kernel/schemas.js';
import { mountSaas } from './saas.js';
import { resolveSaas, type SaasBackendOptions, type SaasConfiguration } from './saas-options.js';
import { assemble, type MiddlewareServer, type Server } from './server-assembly.js';
import { resolveServer, type ServerOptions, saasServerSchema, splitOptions } from './server-options.js';
import { inServer } from './surroundings.js';

export interface CreateServerOptions extends SaasBackendOptions, ServerOptions {
  /** Whether the server has a `middleware` to mount in another application. Default `false`. */
  middleware?: boolean;
}

/**
 * The SaaS backend as a server.
 *
 * @throws ConfigurationError naming every problem of the configuration
 */
export function createServer(
  options: CreateServerOptions & { middleware: true },
): MiddlewareServer<SaasConfiguration>;
export function createServer(options?: CreateServerOptions): Server<SaasConfiguration>;
export function createServer(
  options: CreateServerOptions = {},
): Server<SaasConfiguration> | MiddlewareServer<SaasConfiguration> {
  const { middleware = false, ...rest } = options;
  const [own, given] = splitOptions(saasServerSchema, rest);
  const [server, saas] = gatherProblems(
    'saas-backend',
    () => resolveServer('saas-backend', saasServerSchema, own, given),
    () => resolveSaas(given),
  );
  const { prefix, adminPath } = saas.seams;
  let mountedAt: string | undefined;
  const surroundings = {
    ...inServer(saas.config.values.publicUrl, server.values.port),
    mountedAt: () => mountedAt ?? prefix,
  };
  return assemble({
    server,
    product: 'saas-backend',
    proxyVariable: 'TRUST_PROXY',
    configuration: saas.config,
    random: saas.seams.random,
    surroundings,
    mount: (app) => mountSaas(app, saas, surroundings),
    renderError: (error, _request, requestId) => renderEnvelope(error, requestId),
    renderPlainError: renderEnvelope,
    wrapHealth: ok,
    onMount(path) {
      // Links lead there, so the first one stays, and one that is no plain path leads nowhere.
      if (mountProblem(path) === null) mountedAt ??= path;
    },
    mountPoints: middleware ? [prefix, ...(adminPath === false ? [] : [adminPath])] : undefined,
  });
}

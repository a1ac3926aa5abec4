import type { FastifyInstance, FastifyRequest } from 'fastify';
import { type HostContext, responseRules } from '../core/http/host-context.js';
import { createRouteDescriptions, openApiPlugin } from '../core/http/openapi.js';
import { type FastifyTypebox, type PluginRules, registerRoutes } from '../core/http/routes.js';
import { cronGuard, cronPlugin } from '../core/ops/cron.js';
import { healthPlugin } from '../core/ops/health.js';
import { metricsPlugin } from '../core/ops/metrics.js';
import { followHostProxy } from '../core/server/proxies.js';
import { accountEntryPlugin } from './account.js';
import { createErrorRenderer } from './appearance.js';
import { CONSOLE_PATH } from './console/guard.js';
import type { IdpContext } from './context.js';
import type { IdpModules } from './modules.js';
import { WEBFINGER_PATH } from './oidc/webfinger.js';
import type { ResolvedIdp } from './options.js';

export interface IdpRoutesOptions {
  context: IdpContext;
  runtime: ResolvedIdp['runtime'];
  host: HostContext;
  /** Whether a server of this package registers the plugin, which has the routes at the root. */
  isServer: boolean;
  /** Whether no other product has pages at these paths. */
  ownsItsPaths: boolean;
}

/** Registers the routes of the provider, of its console, and of the metadata of an issuer with a path. */
export async function registerIdpRoutes(
  fastify: FastifyInstance,
  modules: IdpModules,
  options: IdpRoutesOptions,
): Promise<void> {
  const { runtime, context, ownsItsPaths } = options;
  const rules = await rulesOf(fastify, modules, options);
  await registerRoutes(fastify, rules, async (instance) => {
    await registerModules(instance, modules, context);
    await registerDescriptions(instance, fastify.prefix, options);
  });
  if (runtime.console ?? ownsItsPaths) {
    const consoleRules: PluginRules = {
      ...rules,
      prefix: runtime.prefix + CONSOLE_PATH,
      guards: modules.console.guards,
      conflictRemedy:
        'Mount the identity provider at another path with the prefix option, or leave out its console with console: false.',
      handlesNotFound: false,
    };
    await registerRoutes(fastify, consoleRules, modules.console.plugin);
  }
  // RFC 8414 §3.1 inserts the well-known part before the path of the issuer, which only the root of a host can serve.
  if (new URL(context.issuer()).pathname !== '/' && fastify.prefix === '') {
    await registerRoutes(fastify, { ...rules, prefix: '', handlesNotFound: false }, async (instance) => {
      await instance.register(modules.oidc.pathMetadataPlugin);
    });
  }
  await registerWebfinger(fastify, modules, rules);
}

/** Only the root of a host can serve it, and the host may have the path itself. */
async function registerWebfinger(
  fastify: FastifyInstance,
  { oidc }: IdpModules,
  rules: PluginRules,
): Promise<void> {
  if (fastify.prefix !== '' || fastify.hasRoute({ method: 'GET', url: WEBFINGER_PATH })) {
    fastify.log.info(
      `identityProvider leaves ${WEBFINGER_PATH} to the host: name the issuer there for programs that look it up by an e-mail address`,
    );
    return;
  }
  const rootRules = {
    ...rules,
    prefix: '',
    conflictRemedy: 'Declare it before you register identityProvider, which then leaves it out.',
    handlesNotFound: false,
  };
  await registerRoutes(fastify, rootRules, async (root) => {
    await root.register(oidc.webfingerPlugin);
  });
}

async function rulesOf(
  fastify: FastifyInstance,
  { provisioning, oidc, registration, account }: IdpModules,
  { context, runtime, host, isServer }: IdpRoutesOptions,
): Promise<PluginRules> {
  const { prefix } = runtime;
  return {
    ...responseRules(host),
    prefix,
    conflictRemedy: 'Mount the identity provider at another path with the prefix option.',
    guards: {
      ...provisioning.guards,
      ...oidc.guards,
      ...registration?.guards,
      ...account.guards,
      cron: cronGuard(context.values.cronSecret),
    },
    observeRequest: isServer
      ? undefined
      : followHostProxy(fastify, { variable: 'IDP_TRUST_PROXY', value: runtime.proxyVariable }),
    onResponse: context.metrics?.observeResponse,
    tracing: context.telemetry,
    renderError: createErrorRenderer(context.pages),
    meter: context.throttle.countRequest,
    callerSecret: context.values.callerSecret,
    storeTimeoutMs: context.store.requestTimeoutMs,
    bodyLimit: 16 * 1024,
    // At the root of a host, the host handles unknown paths.
    handlesNotFound: prefix !== '',
    isPlugin: !isServer,
    describeRoute: runtime.openapi
      ? await createRouteDescriptions('idp', (url) => url.slice((fastify.prefix + prefix).length))
      : undefined,
  };
}

async function registerModules(
  instance: FastifyTypebox,
  { provisioning, groups, mayJoin, resources, permissions, email, oidc, registration, account }: IdpModules,
  { pages, hasAccountPages, issuer }: IdpContext,
): Promise<void> {
  const { signIn } = oidc;
  const sessionOf = async (request: FastifyRequest) => (await signIn.userOf(request))?.principal ?? null;
  await instance.register(provisioning.plugin, { pages, hasAccountPages, sessionOf });
  await instance.register(groups.plugin, { findPrincipal: provisioning.directory.get, mayJoin });
  await instance.register(resources.plugin);
  await instance.register(permissions.plugin);
  if (email) await instance.register(email.plugin);
  // Pages that are clients also register themselves.
  await instance.register(oidc.plugin, { openRoutes: registration?.plugin });
  await instance.register(account.plugin, { prefix: '/account' });
  if (hasAccountPages) await instance.register(accountEntryPlugin, { signIn, issuer });
}

/** What describes the provider: its OpenAPI document, its state and its metrics. */
async function registerDescriptions(
  instance: FastifyTypebox,
  hostPrefix: string,
  { context, runtime: { prefix }, isServer, ownsItsPaths }: IdpRoutesOptions,
): Promise<void> {
  const { issuer, store, metrics, values } = context;
  if (ownsItsPaths) {
    const mounts = [{ path: '', routesAt: hostPrefix + prefix, reachedAt: () => '' }];
    await instance.register(openApiPlugin, { product: 'idp', serverUrl: issuer, mounts });
  }
  if (ownsItsPaths && !context.production) {
    const { apiDocsPlugin } = await import('../core/http/api-docs.js');
    await instance.register(apiDocsPlugin, { product: 'idp' });
  }
  if (prefix !== '') await instance.register(healthPlugin, { store, wrap: (state) => state });
  if (values.cronSecret !== undefined) await instance.register(cronPlugin, context);
  // At the root, the server has the route.
  if (metrics && values.metrics && (prefix !== '' || !isServer))
    await instance.register(metricsPlugin, { metrics });
}

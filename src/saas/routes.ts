import type { FastifyInstance, FastifyRequest } from 'fastify';
import { registerCors } from '../core/http/cors.js';
import { responseRules } from '../core/http/host-context.js';
import { personOf } from '../core/http/identity.js';
import { createRouteDescriptions, type DescribeRoute, openApiPlugin } from '../core/http/openapi.js';
import { isForm, type Pages, wantsPage } from '../core/http/pages.js';
import { access, type PluginRules, registerRoutes, routeRules } from '../core/http/routes.js';
import { ok } from '../core/http/schemas.js';
import { renderEnvelope } from '../core/kernel/errors.js';
import { cronGuard, cronPlugin } from '../core/ops/cron.js';
import { healthPlugin } from '../core/ops/health.js';
import { metricsPlugin } from '../core/ops/metrics.js';
import type { Mounted } from '../core/server/assembly.js';
import { followHostProxy } from '../core/server/proxies.js';
import type { AccountPages } from './account-pages.js';
import type { AdminModule } from './admin/module.js';
import type { SaasAgents } from './agents.js';
import { documentedFields } from './auth/users/fields.js';
import type { SaasBase } from './base.js';
import type { CallerGuards } from './callers.js';
import type { SaasDecorator } from './decorator.js';
import { refuseImpersonator, type UserGuard } from './guards.js';
import type { SaasModules } from './modules.js';
import type { ResolvedSaas } from './options.js';
import { createDescribeSession, createOwnerOf } from './organizations.js';
import { profilePlugin } from './profile/plugin.js';

/** Those that have routes. */
export interface RoutedModules extends SaasModules {
  admin: AdminModule;
  accountPages: AccountPages | undefined;
}

/** Password managers open it (W3C: A Well-Known URL for Changing Passwords). */
export const CHANGE_PASSWORD_PATH = '/.well-known/change-password';

interface SaasRoutesOptions {
  modules: RoutedModules;
  /** What all routes have in common. */
  rules: Awaited<ReturnType<typeof commonRules>>;
}

/**
 * Registers the routes of all modules: those of the API, of the admin area and of the pages for users. Returns what the endpoint
 * of the metrics needs, if they are enabled.
 */
export async function registerSaasRoutes(
  base: SaasBase,
  modules: RoutedModules,
  saas: SaasDecorator,
  callers: CallerGuards,
): Promise<Mounted['metrics']> {
  const { fastify, context, runtime } = base;
  const metrics = base.values.metrics ? context.metrics : undefined;
  const { admin, accountPages, agents, operators } = modules;
  const byPeopleThemselves = (guard: UserGuard) => async (request: FastifyRequest) => {
    await guard(request);
    refuseImpersonator(request.saas, request);
    if (request.saas.session) await operators.protectFactors(personOf(request.saas), request);
  };
  const guards = {
    user: byPeopleThemselves(callers.requireUser),
    owner: byPeopleThemselves(callers.requireOwner),
    'recent-user': byPeopleThemselves(saas.requireRecentAuth()),
    admin: await admin.createGuard(fastify),
    cron: cronGuard(base.values.cronSecret),
  };
  const endpoint = metrics && { metrics, guard: await admin.createGuardForOutages(fastify) };
  const rules = await commonRules(base, { ...guards, ...(endpoint && { metrics: endpoint.guard }) });
  const options = { modules, rules };
  await openApi(base, options);
  if (runtime.adminPath !== false) await openAdminArea(fastify, runtime.adminPath, options);
  if (accountPages) await openAccountPages(base, accountPages, options);
  if (agents) await openAgentMetadata(fastify, agents, options);
  return endpoint;
}

async function commonRules(
  { fastify, context: { store, metrics, telemetry }, host, isPlugin, runtime, values }: SaasBase,
  guards: PluginRules['guards'],
) {
  return {
    ...responseRules(host),
    guards,
    onResponse: metrics?.observeResponse,
    tracing: telemetry,
    callerSecret: values.callerSecret,
    storeTimeoutMs: store.requestTimeoutMs,
    bodyLimit: 100 * 1024,
    handlesNotFound: true,
    isPlugin,
    observeRequest: isPlugin
      ? followHostProxy(fastify, { variable: 'TRUST_PROXY', value: runtime.proxyVariable })
      : undefined,
    describeRoute: await openRouteDescriptions(fastify, runtime),
  };
}

async function openApi(base: SaasBase, { modules, rules }: SaasRoutesOptions): Promise<void> {
  const { fastify, context, config, values, publicUrl, mountedAt } = base;
  const { prefix, adminPath } = base.runtime;
  const { users, auth, loginProviders, passkeys, agents, organizations, keys, settings } = modules;
  const { billing, email, pages } = modules;
  const apiRules = {
    ...rules,
    prefix,
    conflictRemedy: 'Mount the API at another path with the prefix option.',
    renderError: createErrorRenderers(pages).api,
    meter: context.throttle.countRequest,
  };
  await registerRoutes(fastify, apiRules, async (api) => {
    settings.enforceMaintenance(api);
    await registerCors(api, values.corsOrigin ?? [], async (open) => {
      auth.useSessionCookies(open);
      const describeSession = createDescribeSession(organizations, billing.subscription.features);
      await open.register((routes) => auth.plugin(routes, { describeSession }));
      if (loginProviders) await open.register(loginProviders.plugin);
      if (passkeys) await open.register(passkeys.plugin);
      if (agents?.plugin) await open.register(agents.plugin);
      if (organizations) await open.register(organizations.plugin);
      if (keys) await open.register(keys.plugin);
      const { changeProfile } = users.directory;
      await open.register(profilePlugin, { changeProfile, hasUserFields: users.userFields !== undefined });
      await open.register(settings.plugin);
      await open.register((routes) => billing.plugin(routes, createOwnerOf(organizations)));
      await open.register(email.plugin);
      await open.register(healthPlugin, { store: context.store, wrap: ok });
      await open.register(openApiPlugin, {
        product: 'saas-backend',
        serverUrl: publicUrl,
        unusedSchemes: agents ? [] : ['boundAccessToken'],
        declaredSchemas: documentedFields(base.runtime.userFields),
        mounts: [
          { path: '/api', routesAt: fastify.prefix + prefix, reachedAt: mountedAt },
          ...(adminPath === false ? [] : [{ path: '/admin', routesAt: fastify.prefix + adminPath }]),
          // The routes at the root of a host are its own.
          ...(rules.isPlugin ? [] : [{ path: '', routesAt: '' }]),
        ],
      });
      if (!config.production) {
        const { apiDocsPlugin } = await import('../core/http/api-docs.js');
        await open.register(apiDocsPlugin, { product: 'saas-backend' });
      }
      if (context.metrics && values.metrics) await open.register(metricsPlugin, { metrics: context.metrics });
    });
    await api.register(billing.webhookPlugin);
    if (values.cronSecret !== undefined) await api.register(cronPlugin, context);
  });
}

async function openAdminArea(
  fastify: FastifyInstance,
  prefix: string,
  { rules, modules: { admin, settings, billing, pages } }: SaasRoutesOptions,
): Promise<void> {
  const adminRules = {
    ...rules,
    prefix,
    conflictRemedy:
      'Mount the admin area at another path with the adminPath option, or disable it with adminPath: false.',
    renderError: createErrorRenderers(pages).pages,
  };
  await registerRoutes(fastify, adminRules, async (area) => {
    await area.register(admin.plugin);
    await area.register(settings.adminPlugin);
    await area.register(billing.adminPlugin);
  });
}

async function openAccountPages(
  { fastify, context, runtime: { accountPath } }: SaasBase,
  accountPages: AccountPages,
  { rules, modules: { settings, pages } }: SaasRoutesOptions,
): Promise<void> {
  const accountRules = {
    ...rules,
    guards: accountPages.guards,
    prefix: accountPath,
    conflictRemedy: 'Mount the pages for users at another path with the accountPath option.',
    renderError: createErrorRenderers(pages).pages,
    meter: context.throttle.countRequest,
  };
  await registerRoutes(fastify, accountRules, async (area) => {
    settings.enforceMaintenance(area);
    await area.register(accountPages.plugin);
  });
  // A host may have the path itself, and only its root can serve it.
  const url = CHANGE_PASSWORD_PATH;
  if (fastify.prefix !== '' || fastify.hasRoute({ method: 'GET', url })) return;
  const rootRules = {
    ...accountRules,
    prefix: '',
    conflictRemedy: 'Declare it before you register saasBackend, which then leaves it out.',
    handlesNotFound: false,
  };
  await registerRoutes(fastify, rootRules, async (root) => {
    root.get(url, { config: access('public', { page: true }) }, (_request, reply) =>
      reply.redirect(`${accountPath}/password`, 302),
    );
  });
}

/** How long clients may keep the metadata. */
const METADATA_SECONDS = 300;

/** The metadata of the API for agents (RFC 9728), whose path is at the root of the host. */
async function openAgentMetadata(
  fastify: FastifyInstance,
  { metadataPath, metadata }: SaasAgents,
  { rules, modules: { pages } }: SaasRoutesOptions,
): Promise<void> {
  if (fastify.prefix !== '') {
    fastify.log.warn(`saasBackend is registered below ${fastify.prefix}: serve ${metadataPath} yourself`);
    return;
  }
  const rootRules = {
    ...rules,
    prefix: '',
    conflictRemedy: 'Agents find the identity provider there; remove your route.',
    renderError: createErrorRenderers(pages).api,
    handlesNotFound: false,
  };
  await registerRoutes(fastify, rootRules, async (root) => {
    root.get(metadataPath, { config: access('public', { cors: false }) }, (_request, reply) =>
      reply
        // Clients in pages of any origin read it before they sign in.
        .header('access-control-allow-origin', '*')
        .header('cache-control', `public, max-age=${METADATA_SECONDS}`)
        .send(metadata()),
    );
  });
}

/**
 * Creates the functions that render errors of the API and of the pages: as JSON for applications, and as pages for
 * browsers.
 */
function createErrorRenderers(pages: Pages): Record<'api' | 'pages', PluginRules['renderError']> {
  return {
    // Applications use the paths of pages, too, so only their GETs and forms get an error page.
    api: (error, request, requestId) =>
      routeRules(request.routeOptions).page && (request.method === 'GET' || isForm(request))
        ? pages.renderError(error, request, requestId)
        : renderEnvelope(error, requestId),

    pages: (error, request, requestId) =>
      wantsPage(request.headers.accept)
        ? pages.renderError(error, request, requestId)
        : renderEnvelope(error, requestId),
  };
}

/**
 * The descriptions of the routes for a host that asks for them. The document has the default paths, so those of the
 * installation are translated.
 */
async function openRouteDescriptions(
  { prefix: hostPrefix }: FastifyInstance,
  { openapi, prefix, adminPath }: ResolvedSaas['runtime'],
): Promise<DescribeRoute | undefined> {
  if (!openapi) return undefined;
  const api = hostPrefix + prefix;
  const admin = adminPath === false ? undefined : hostPrefix + adminPath;
  return createRouteDescriptions('saas-backend', (url) => {
    if (admin !== undefined && url.startsWith(`${admin}/`)) return `/admin${url.slice(admin.length)}`;
    return `/api${url.slice(api.length)}`;
  });
}

import type { FastifyInstance } from 'fastify';
import fp from 'fastify-plugin';
import { authorizationIn, type RequestHeaders } from '../core/http/authorization.js';
import { createBrand } from '../core/http/brand.js';
import { answerRules, type HostContext, logConfiguration, pluginContext } from '../core/http/host-context.js';
import { createMessages } from '../core/http/messages.js';
import { createPages } from '../core/http/pages.js';
import { createListedAudit, listedAuditCollection } from '../core/ops/audit.js';
import { createAuditSearch } from '../core/ops/audit-search.js';
import { type Announce, createEvents, type Emit } from '../core/ops/events.js';
import { openMetrics } from '../core/ops/metrics.js';
import type { Mounted } from '../core/server/assembly.js';
import { claimStore } from '../core/server/claimed-store.js';
import { openMeasuredStore } from '../core/server/measured-store.js';
import { createModuleContext, followLifecycle } from '../core/server/module-context.js';
import { followHostProxy } from '../core/server/proxies.js';
import { rejectUnfinishedCopy } from '../core/server/unfinished-copy.js';
import { ratesOf } from '../core/throttle/options.js';
import { OutboxMail } from '../shared/email/administration.js';
import { createEmailModule } from '../shared/email/module.js';
import { FACTOR_VERSION } from '../shared/factors/store.js';
import { passkeyCollection, readPasskeyVersion } from '../shared/passkeys/store.js';
import { accountData } from './account-data.js';
import { openAccountPages } from './account-pages.js';
import { createAdminModule } from './admin/module.js';
import { AGENT_EVENTS, type AgentEvents } from './agents/schemas.js';
import { agentLinkCollection, readLinkVersion } from './agents/store.js';
import { openAgents } from './agents.js';
import { AUTH_EVENTS, type AuthEvents } from './auth/events.js';
import { createAuthModule, createUsersModule } from './auth/module.js';
import { registerSessionTokenKinds } from './auth/sessions/jwt.js';
import { readUserVersion, userCollection } from './auth/store.js';
import { NO_SUBSCRIPTION } from './billing/entitlement.js';
import { EventRecord } from './billing/events/log.js';
import { createBillingModule } from './billing/module.js';
import { BILLING_NOTIFICATIONS, type BillingNotifications } from './billing/notifications.js';
import { billingRecordSchemas } from './billing/records.js';
import { billingUsers } from './billing-users.js';
import {
  createEntitlementGuards,
  createRecentAuthGuards,
  type SaasEvents,
  type SettingsApi,
  type UserRequest,
} from './decorator.js';
import type { SaasBackendOptions } from './documented-options.js';
import { describeInstallation } from './installation.js';
import { identityCollection, readIdentityVersion } from './login-providers/store.js';
import { openRouteDescriptions } from './openapi.js';
import { adviseSaas, type ResolvedSaas, resolveSaas, sealingSecrets, withAccountPages } from './options.js';
import { openEmailLogin, openLoginProviders } from './other-logins.js';
import { openPasskeys } from './passkeys.js';
import { createProfileModule } from './profile/module.js';
import { openScopes } from './scopes.js';
import { openSecondFactors } from './second-factors.js';
import { createSettingsModule, openCustomSettings } from './settings/module.js';
import { createUserAdministration } from './user-administration.js';
import { createUserApi } from './user-api.js';
import { openWebhooks } from './webhooks.js';

/** Creates the modules, registers them on `fastify` and returns what they share. */
export async function mountSaas(
  fastify: FastifyInstance,
  { config, runtime }: ResolvedSaas,
  { hostContext, agentScopes = new Set() }: { hostContext?: HostContext; agentScopes?: Set<string> } = {},
): Promise<Mounted> {
  if (fastify.hasDecorator('saas')) {
    throw new Error(
      "saasBackend is already registered on this instance, or another decorator is named 'saas'. Each registration serves one prefix.",
    );
  }
  logConfiguration(fastify, config, adviseSaas(config));
  const { clock, random, prefix, adminPath, accountPath, hooks } = runtime;
  // As browsers see it.
  const accountAddress = fastify.prefix + accountPath;
  const values = withAccountPages(config.values, accountAddress);
  const host = hostContext ?? pluginContext(fastify, { configured: values.publicUrl, port: 3000 }, random);
  const { publicUrl, mountedAt = () => fastify.prefix + prefix } = host;
  const metrics = values.metrics ? await openMetrics('saas_backend', runtime.metricsPeers) : undefined;
  const store = await openMeasuredStore(
    runtime.mongo ? { mongo: runtime.mongo, prefix: 'saas_' } : values.databaseUri,
    metrics,
    fastify.log,
  );
  fastify.addHook('onClose', () => store.close());
  await rejectUnfinishedCopy(store);
  await claimStore(store, 'saas-backend');

  const context = createModuleContext(store, {
    ...runtime,
    production: config.production,
    log: fastify.log,
    createAudit: createListedAudit,
    throttleSecret: values.jwtRefreshSecret,
    rates: ratesOf(values),
    metrics,
  });
  followLifecycle(fastify, context, values);
  const documents = userCollection(store);
  const passkeyDocuments = passkeyCollection(store);
  const agentLinks = agentLinkCollection(store);
  const identities = identityCollection(store);
  const names = { ...AUTH_EVENTS, ...BILLING_NOTIFICATIONS, ...AGENT_EVENTS };
  const webhooks = await openWebhooks(context, {
    ...{ values, production: config.production, names: Object.keys(names) },
    ...{ users: documents, agentLinks },
  });
  const outbox = webhooks?.outbox;
  const all = createEvents<SaasEvents>({ names, outbox, clock, random, log: fastify.log });
  const { events, record } = all;
  // TypeScript does not infer that a function for all events accepts a subset of them.
  const emit = all.emit as Emit<AuthEvents> & Emit<BillingNotifications> & Emit<AgentEvents>;
  const announceEvent = all.announce as Announce<AuthEvents> &
    Announce<BillingNotifications> &
    Announce<AgentEvents>;

  const { customSettings: definitions } = runtime;
  const keys = [values.settingsEncryptionKey, values.settingsEncryptionKeyPrevious];
  const custom = definitions && (await openCustomSettings(context, { definitions, keys }));
  const settings = createSettingsModule(context, { operator: values.adminUsername, custom });
  const { current } = settings.service;
  const siteName = async () => (await current()).siteName;
  const messages = createMessages(values);
  const brand = createBrand(values, () => settings.service.latest().siteName);
  const pages = createPages(brand, messages);
  const email = createEmailModule(context, {
    config,
    secrets: sealingSecrets(values),
    previousVariable: 'JWT_REFRESH_SECRET_PREVIOUS',
    colours: brand.colours,
    messages,
    publicUrl: publicUrl.get,
    settings: async () => ({ ...(await current()), siteName: values.brandName ?? (await siteName()) }),
    readUserVersion: async (userId, field) =>
      field === FACTOR_VERSION && secondFactors
        ? secondFactors.service.version(userId)
        : ((await readPasskeyVersion(passkeyDocuments, userId, field)) ??
          (await readLinkVersion(agentLinks, userId, field)) ??
          (await readIdentityVersion(identities, userId, field)) ??
          readUserVersion(documents, userId, field)),
  });
  const billing = createBillingModule(context, {
    config: values,
    users: billingUsers(documents),
    outbox: email.service,
    emit,
    record: record as Emit<BillingNotifications>,
    announceEvent,
    publicUrl: publicUrl.get,
  });
  const users = createUsersModule(context, {
    users: documents,
    summaryOf: billing.summaryOf,
    siteName,
    marksProfileChanges: values.paymentSecretKey !== undefined,
    announceEvent,
  });
  const mount = `saas-backend ${fastify.prefix}${prefix}`;
  const secondFactors = await openSecondFactors(fastify, context, {
    values,
    mount,
    issuer: brand.name,
    announce: (...change) => auth.announceFactor(...change),
  });
  const { forgetCredentials, ...data } = accountData(context, {
    ...{ values, billing, mails: email.service, passkeyDocuments, agentLinks, secondFactors, webhooks },
    optional: () => ({ loginProviders, passkeys, agents }),
  });
  const emailLogin = await openEmailLogin(context, { values, forgetCredentials, messages });
  const auth = createAuthModule(context, {
    config: values,
    tokenKinds: await registerSessionTokenKinds(fastify, mount, values),
    users,
    outbox: email.service,
    ...data,
    secondFactor: secondFactors?.option,
    emailLogin,
    registrationAllowed: async () => (await current()).allowRegistration,
    siteName,
    profileChanged: billing.sendProfiles,
    hooks: hooks && (await import('./auth/hooks.js')).createHooks(hooks, fastify.log),
    emit,
    announceEvent,
    publicUrl,
    origins: values.corsOrigin ?? [],
    mountedAt,
    pages,
    messages,
  });
  const loginProviders = await openLoginProviders(context, {
    ...{ values, production: config.production, auth, messages },
    publicUrl: publicUrl.get,
    apiUrl: () => publicUrl.get() + mountedAt(),
    hasPasskeys: async (userId) => passkeys?.service.keepsOne(userId) ?? false,
  });
  const passkeys = await openPasskeys(context, {
    ...{ values, auth, messages, address: publicUrl.get, name: brand.name },
    hasIdentities: async (userId) => loginProviders?.service.keepsOne(userId) ?? false,
  });
  const apiUrl = () => publicUrl.get() + mountedAt();
  const agents = await openAgents(fastify, context, {
    ...{ values, users, auth, links: agentLinks, announceEvent, scopes: agentScopes, apiUrl },
    name: brand.name,
    publicUrl: publicUrl.get,
  });
  const rename = async (userId: string, name: string) => {
    const user = await users.directory.rename(userId, name);
    billing.sendProfiles();
    return user;
  };
  const profile = createProfileModule({ rename });
  const accountPages = await openAccountPages(context, {
    ...{
      values,
      auth,
      users,
      billing,
      secondFactors,
      loginProviders,
      passkeys,
      agents,
      pages,
      messages,
      rename,
    },
    registrationAllowed: async () => (await current()).allowRegistration,
    path: accountAddress,
    publicUrl: publicUrl.get,
    apiPath: mountedAt,
  });
  const admin = createAdminModule(context, {
    config: values,
    overview: {
      users: users.directory,
      sessions: auth.sessions,
      webhookEvents: billing.webhookEvents,
      activity: auth.activity,
      mails: email.service,
      billing: billing.figures,
      duplicates: billing.duplicates,
      endpoints: webhooks?.service,
      settings: settings.service,
    },
    ...createUserAdministration({
      ...context,
      users,
      auth,
      billing,
      hasPaymentKey: values.paymentSecretKey !== undefined,
      mails: email.service,
      secondFactors: secondFactors?.service,
      passkeys: passkeys?.service,
    }),
    billing: { ...billing.records, schemas: billingRecordSchemas },
    webhooks: { ...billing.eventLog, schema: EventRecord },
    mails: { ...email.administration, schema: OutboxMail },
    audit: createAuditSearch(listedAuditCollection(store)),
    settings: settings.service,
    customSettings: custom,
    endpoints: webhooks?.adminPlugin,
    installation: describeInstallation(config),
    pages,
  });

  const requireSession = async (request: UserRequest): Promise<void> => {
    request.saas = await auth.service.authenticate(request.headers.authorization);
  };
  const requireUser = agents?.admitAgents(requireSession) ?? requireSession;
  const hasSecondFactors = secondFactors !== undefined || passkeys !== undefined;
  const requireRecentAuth = createRecentAuthGuards(agents?.refuseAgents(requireSession) ?? requireSession, {
    hasSecondFactors,
    clock,
  });
  const requireAdmin = await admin.createGuard(fastify);
  const metricsEndpoint = metrics && { metrics, guard: await admin.createGuardForOutages(fastify) };
  fastify.decorate(
    'saas',
    Object.freeze({
      requireUser,
      ...createEntitlementGuards(requireUser, billing.subscription, billing.plans),
      requireRecentAuth,
      authenticate: async (headers: RequestHeaders) => auth.service.authenticate(authorizationIn(headers)),
      entitles: billing.subscription.entitles,
      hasFeature: billing.subscription.hasFeature,
      limits: billing.subscription.limits,
      users: createUserApi({ users, auth, grants: billing.grants }),
      billing: Object.freeze({
        async get(userId: string) {
          const user = await documents.findOne({ id: userId });
          return user ? billing.summaryOf(user) : { ...NO_SUBSCRIPTION, entitled: false };
        },
        createCheckout: billing.checkout.create,
        ...billing.changes,
      }),
      reportUsage: billing.reportUsage,
      settings: Object.freeze({ get: async () => (await custom?.get()) ?? {} }) as SettingsApi,
      events,
    }),
  );
  fastify.decorateRequest('saas');

  const rules = {
    ...answerRules(host),
    guards: {
      user: requireUser,
      'recent-user': requireRecentAuth(),
      admin: requireAdmin,
      ...(metricsEndpoint && { metrics: metricsEndpoint.guard }),
    },
    onResponse: metrics?.observeResponse,
    callerSecret: values.callerSecret,
    storeTimeoutMs: store.requestTimeoutMs,
    bodyLimit: 100 * 1024,
    handlesNotFound: true,
    isPlugin: hostContext === undefined,
    observeRequest:
      hostContext === undefined
        ? followHostProxy(fastify, { variable: 'TRUST_PROXY', value: runtime.proxyVariable })
        : undefined,
    describeRoute: await openRouteDescriptions(fastify, runtime),
  };
  if (adminPath !== false) context.jobs.add('active-users', auth.activity.job);
  await openScopes(fastify, {
    paths: { prefix, adminPath, accountPath },
    rules,
    meter: context.throttle.countRequest,
    modules: {
      auth,
      loginProviders,
      passkeys,
      agents,
      profile,
      settings,
      billing,
      email,
      admin,
      accountPages,
    },
    corsOrigin: values.corsOrigin ?? [],
    hasApiDocs: !config.production,
    ...{ pages, store, metrics, publicUrl: publicUrl.get, mountedAt },
  });
  // All collections are declared here, so a faulty store prevents the start.
  await store.ready();
  return { store, metrics: metricsEndpoint };
}

/**
 * The SaaS backend as a Fastify plugin: the API under `prefix` (default `/api`) and the admin area under
 * `adminPath` (default `/admin`). Environment variables apply unless `env` is false; options take
 * precedence.
 *
 * @throws ConfigurationError naming every problem of the configuration
 */
export const saasBackend = fp(
  async (fastify: FastifyInstance, options: SaasBackendOptions) => {
    await mountSaas(fastify, resolveSaas(options));
  },
  { fastify: '5.x', name: 'saas-backend' },
);

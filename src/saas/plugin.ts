import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyInstance } from 'fastify';
import fp from 'fastify-plugin';
import { createFormTokens } from '../admin/forms.js';
import { createAdminGuard } from '../admin/guard.js';
import { adminPlugin } from '../admin/plugin.js';
import { AUTH_EVENTS, type AuthEvents } from '../auth/events.js';
import { createForeignHashes, foreignHashCollection } from '../auth/foreign-hashes.js';
import { registerTokenKind } from '../auth/jwt.js';
import { authPlugin } from '../auth/plugin/index.js';
import type { Identity } from '../auth/sessions.js';
import { sessionCollection, userCollection, userView, type ViewOf } from '../auth/store.js';
import { createUserDirectory } from '../auth/users.js';
import { BILLING_EVENTS, type BillingNotices } from '../billing/notices.js';
import { billingPlugin, webhookPlugin } from '../billing/plugin.js';
import { createEmail } from '../email/service.js';
import { mailCollection } from '../email/store.js';
import { loadTemplates } from '../email/templates.js';
import { openTransport } from '../email/transport-selection.js';
import { authorizationIn, type RequestHeaders } from '../http/authorization.js';
import { registerCors } from '../http/cors.js';
import { answerRules, type HostContext, logConfiguration, pluginContext } from '../http/host-context.js';
import { createPages } from '../http/pages.js';
import { ok } from '../http/schemas.js';
import { openScope } from '../http/scope.js';
import { createListedAudit } from '../ops/audit.js';
import { createEvents, type Emit, type Subscription } from '../ops/events.js';
import { healthPlugin } from '../ops/health.js';
import { profilePlugin } from '../profile/plugin.js';
import { createModuleContext, followLifecycle } from '../server/module-context.js';
import { enforceMaintenance, settingsAdminPlugin, settingsPlugin } from '../settings/plugin.js';
import { createSettings } from '../settings/service.js';
import type { Store } from '../storage/collection.js';
import { openStore } from '../storage/open.js';
import { createAccounts } from './accounts.js';
import { createBillingDomain, createEntitlementGuard, type UserGuard, type UserRequest } from './billing.js';
import { saasErrors } from './errors.js';
import { adviseSaas, type ResolvedSaas, resolveSaas, type SaasBackendOptions } from './options.js';
import { createUserApi, type UserApi } from './users.js';

/** The SaaS backend: the one place where its domains are put together. */

/** What the host gets: `fastify.saas`. */
export interface SaasDecorator {
  /** For a host's own routes: `onRequest: fastify.saas.requireUser` sets `request.saas` or throws a 401. */
  readonly requireUser: UserGuard;
  /** The same for those whose subscription entitles them, to `plan` where one is named; else it throws a 403. */
  readonly requireEntitled: (plan?: string) => UserGuard;
  /**
   * The user and session behind an `Authorization: Bearer` header, where there is no route to guard.
   * @throws AppError with `statusCode`, `code` and `headers`: UNAUTHENTICATED, TOKEN_EXPIRED
   */
  readonly authenticate: (headers: RequestHeaders) => Promise<Identity>;
  /**
   * Whether the user may use what needs a subscription, to `plan` where one is named. False for unknown users; it
   * rejects only when the store is unavailable. A suspended account keeps what it has: `requireUser` refuses it.
   */
  readonly entitles: (userId: string, plan?: string) => Promise<boolean>;
  readonly users: Readonly<UserApi>;
  /** What has happened, told once, after its commit, in the process that committed it. */
  readonly events: Readonly<Subscription<SaasEvents>>;
}

export type SaasEvents = AuthEvents & BillingNotices;

declare module 'fastify' {
  interface FastifyInstance {
    saas: SaasDecorator;
  }
  interface FastifyRequest {
    /** Who makes this request, on routes behind `requireUser`. */
    saas: Identity;
  }
}

/** Builds the domains, mounts them on `fastify` and answers with the store they share. */
export async function mountSaas(
  fastify: FastifyInstance,
  { config, runtime }: ResolvedSaas,
  hostContext?: HostContext,
): Promise<Store> {
  if (fastify.hasDecorator('saas')) {
    throw new Error(
      "saasBackend is registered on this instance already, or something else is called 'saas' there. One registration serves one prefix.",
    );
  }
  logConfiguration(fastify, config, adviseSaas(config));
  const { values } = config;
  const { clock, random, prefix, adminPath } = runtime;
  const host = hostContext ?? pluginContext(fastify, { configured: values.publicUrl, port: 3000 }, random);
  const { publicUrl, mountedAt = () => fastify.prefix + prefix } = host;
  const store = await openStore(
    runtime.mongo ? { mongo: runtime.mongo, prefix: 'saas_' } : values.databaseUri,
  );
  fastify.addHook('onClose', () => store.close());

  const users = userCollection(store);
  const sessions = sessionCollection(store);
  const context = createModuleContext(store, {
    ...runtime,
    production: config.production,
    log: fastify.log,
    createAudit: createListedAudit,
    throttleSecret: values.jwtRefreshSecret,
  });
  followLifecycle(fastify, context, values);
  const { audit, throttle, passwords, passwordPolicy, jobs, backgroundTasks } = context;
  const settings = createSettings({ store, audit, clock });
  const siteName = async () => (await settings.current()).siteName;
  const documents = foreignHashCollection(store);
  const foreignHashes = createForeignHashes({ documents, users, passwords, clock });
  const hashing = { passwords, passwordPolicy, foreignHashes };

  const email = createEmail({
    mails: mailCollection(store),
    templates: loadTemplates(values.emailTemplateDir),
    transport: openTransport(config, { publicUrl: publicUrl.get(), clock, log: fastify.log }),
    from: { email: values.fromEmail, name: values.fromName },
    publicUrl: publicUrl.get,
    settings: settings.current,
    async holds({ userId, is, reaches }) {
      const user = await users.findOne({ id: userId });
      if (!user) return 'never';
      const { passwordVersion, emailVersion = 0 } = user;
      const versions: Record<string, number> = { passwordVersion, emailVersion };
      return (versions[is] ?? 0) >= reaches ? 'yes' : 'not-yet';
    },
    nudge: () => void jobs.runNow('mail'),
    clock,
    random,
    log: fastify.log,
  });
  jobs.add('mail', email.jobs.relay);
  jobs.add('mail-purge', email.jobs.purge);
  // Closed once the relay, which is a job, sends nothing more.
  fastify.addHook('onClose', async () => {
    await jobs.stop();
    await email.close();
  });

  const { emit: emitAny, events } = createEvents<SaasEvents>({
    names: { ...AUTH_EVENTS, ...BILLING_EVENTS },
    clock,
    random,
    log: fastify.log,
  });
  // Whoever may tell of everything may tell of a part, which the compiler does not see by itself.
  const emit = emitAny as Emit<AuthEvents> & Emit<BillingNotices>;
  const {
    billing,
    forget,
    subscription,
    summaryOf,
    grants,
    catalog,
    webhook,
    webhookEvents,
    jobs: billingJobs,
  } = createBillingDomain(
    { config, runtime },
    {
      store,
      users,
      audit,
      outbox: email,
      emit,
      publicUrl,
      log: fastify.log,
      pause: sleep,
    },
  );
  jobs.add('billing-settle', billingJobs.settle);
  jobs.add('billing-recheck', billingJobs.recheck);
  const viewOf: ViewOf = async (user) => userView(user, await summaryOf(user));
  const directory = createUserDirectory({ ...hashing, users, viewOf, siteName, audit, clock, random });
  const mount = `saas-backend ${fastify.prefix}${prefix}`;
  const accessTokens = await registerTokenKind(fastify, {
    namespace: `${mount} access`,
    typ: 'at+jwt',
    secret: values.jwtAccessSecret,
    previous: values.jwtAccessSecretPrevious,
  });
  const refreshTokens = await registerTokenKind(fastify, {
    namespace: `${mount} refresh`,
    typ: 'rt+jwt',
    secret: values.jwtRefreshSecret,
    previous: values.jwtRefreshSecretPrevious,
  });
  const { auth, exportOf } = await createAccounts(
    { config, runtime },
    {
      accessTokens,
      refreshTokens,
      users,
      sessions,
      ...hashing,
      siteName,
      audit,
      throttle,
      settings,
      billing,
      forgetPurchases: forget,
      email,
      jobs,
      backgroundTasks,
      emit,
      viewOf,
      publicUrl,
      mountedAt,
    },
  );

  const requireUser = async (request: UserRequest): Promise<void> => {
    request.saas = await auth.authenticate(request.headers.authorization);
  };
  const requireAdmin = await createAdminGuard(fastify, {
    username: values.adminUsername,
    password: values.adminPassword,
    audit,
    throttle,
  });
  const userApi = createUserApi({ users, directory, grants, audit, emit, clock });
  const requireEntitled = createEntitlementGuard(requireUser, subscription);
  fastify.decorate(
    'saas',
    Object.freeze({
      requireUser,
      requireEntitled,
      authenticate: async (headers: RequestHeaders) => auth.authenticate(authorizationIn(headers)),
      entitles: subscription.entitles,
      users: userApi,
      events,
    }),
  );
  fastify.decorateRequest('saas');

  const rules = {
    ...answerRules(host),
    guards: { user: requireUser, admin: requireAdmin },
    bodyLimit: 100 * 1024,
    own404: true,
    isPlugin: hostContext === undefined,
  };
  const pages = createPages({ name: () => new URL(publicUrl.get()).host });
  const renderError = saasErrors(pages);

  const apiRules = {
    ...rules,
    prefix,
    conflictRemedy: 'Mount the API elsewhere with the option prefix.',
    renderError: renderError.api,
    meter: throttle.refusalOf,
  };
  await openScope(fastify, apiRules, async (api) => {
    enforceMaintenance(api, settings);
    await registerCors(api, values.corsOrigin ?? [], async (open) => {
      await open.register(authPlugin, { auth, exportOf, throttle, pages, home: publicUrl.get });
      await open.register(profilePlugin, { rename: directory.rename });
      await open.register(settingsPlugin, { settings });
      await open.register(billingPlugin, { billing, subscription, catalog });
      await open.register(healthPlugin, { store, wrap: ok });
    });
    await api.register(webhookPlugin, { webhook });
  });
  if (adminPath !== false) {
    const adminRules = {
      ...rules,
      prefix: adminPath,
      conflictRemedy:
        'Mount the admin area elsewhere with the option adminPath, or leave it out: adminPath: false.',
      renderError: renderError.admin,
    };
    await openScope(fastify, adminRules, async (admin) => {
      const { adminUsername: operator, adminPassword = '' } = values;
      const formTokens = createFormTokens({ secret: `${operator}:${adminPassword}`, clock });
      const shown = { users: directory, sessions, webhookEvents, settings, operator };
      await admin.register(adminPlugin, { ...shown, formTokens, pages });
      await admin.register(settingsAdminPlugin, { settings, operator });
    });
  }
  // Every collection is declared by now: what is wrong with the store stops the start.
  await store.ready();
  return store;
}

/**
 * The SaaS backend as a Fastify plugin: the API under `prefix` (default `/api`) and the admin area under
 * `adminPath` (default `/admin`). Reads the environment unless `env` says otherwise; passed options win.
 *
 * @throws ConfigurationError naming every problem of the configuration
 */
export const saasBackend = fp(
  async (fastify: FastifyInstance, options: SaasBackendOptions) => {
    await mountSaas(fastify, resolveSaas(options));
  },
  { fastify: '5.x', name: 'saas-backend' },
);

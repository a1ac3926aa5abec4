import type { FastifyInstance } from 'fastify';
import fp from 'fastify-plugin';
import { createBrand } from '../core/http/brand.js';
import { createMessages } from '../core/http/messages.js';
import { createPages } from '../core/http/pages.js';
import type { Mounted } from '../core/server/assembly.js';
import { createEmailModule } from '../shared/email/module.js';
import { openAccountPages } from './account-pages.js';
import { createAdminArea } from './admin-area.js';
import { openAgents } from './agents.js';
import { createWithApproving } from './approving.js';
import { openAttention } from './attention.js';
import { createAccountMailsModule, createAuthModule, createUsersModule } from './auth/module.js';
import { registerSessionTokenKinds } from './auth/sessions/jwt.js';
import { type MountOptions, openBase, type SaasBase } from './base.js';
import { createBillingModule } from './billing/module.js';
import { billingOwners } from './billing-owners.js';
import { collectScopes, createCallerGuards } from './callers.js';
import { createDecorator } from './decorator.js';
import { openDirectory } from './directory.js';
import { createEventBus } from './events.js';
import { openKeys } from './keys.js';
import { createOperators } from './operators.js';
import { type ResolvedSaas, resolveSaas, returnPathOf, type SaasBackendOptions } from './options.js';
import { organizationCollections } from './organizations/store.js';
import { openOrganizations } from './organizations.js';
import { registerSaasRoutes } from './routes.js';
import { createSettingsModule, openCustomSettings } from './settings/module.js';
import {
  createFindActiveUser,
  createHasFactor,
  createReadUser,
  openEmailLogin,
  openLoginProviders,
  openPasskeys,
  openSecondFactors,
} from './sign-in-methods.js';
import { openWebhooks } from './webhooks.js';

/** Creates the modules, registers them on `fastify` and returns what they share. */
export async function mountSaas(
  fastify: FastifyInstance,
  resolved: ResolvedSaas,
  options: MountOptions = {},
): Promise<Mounted> {
  if (fastify.hasDecorator('saas')) {
    throw new Error(
      "saasBackend is already registered on this instance, or another decorator is named 'saas'. Each registration serves one prefix.",
    );
  }
  const base = await openBase(fastify, resolved, options);
  const services = await openServices(base);
  const domains = await openDomains(base, services);
  const modules = { ...services, ...domains };
  const accountPages = await openAccountPages(base, modules);
  const admin = createAdminArea(base, modules);
  openAttention(base, modules, admin);

  const callers = createCallerGuards(modules, createWithApproving(modules, base.context.clock));
  if (modules.agents || modules.keys) collectScopes(fastify, base.agentScopes);
  const saas = createDecorator(base, modules, callers);
  fastify.decorate('saas', saas);
  fastify.decorateRequest('saas');
  const metrics = await registerSaasRoutes(base, { ...modules, accountPages, admin }, saas, callers);
  // All collections are declared here, so a faulty store prevents the start.
  await base.context.store.ready();
  return { store: base.context.store, metrics };
}

/** What the domains use: events, settings, pages and e-mail. */
async function openServices(base: SaasBase) {
  const { context, config, values, runtime, publicUrl, secrets } = base;
  const webhooks = await openWebhooks(base);
  const events = createEventBus(context, webhooks?.outbox);

  const { customSettings: definitions } = runtime;
  const keys = [values.settingsEncryptionKey, values.settingsEncryptionKeyPrevious];
  const custom = definitions && (await openCustomSettings(context, { definitions, keys }));
  const administered = { operator: values.adminUsername, custom };
  const settings = createSettingsModule(context, administered, runtime.agents && 'provider');

  const messages = createMessages(values);
  const brand = createBrand(values, () => settings.service.latest().siteName);
  const pages = createPages(brand, messages);

  const email = createEmailModule(context, {
    config,
    secrets,
    previousVariable: 'JWT_REFRESH_SECRET_PREVIOUS',
    colours: brand.colours,
    messages,
    publicUrl,
    settings: async () => {
      const current = await settings.service.current();
      return { ...current, siteName: values.brandName ?? current.siteName };
    },
  });
  return { webhooks, events, settings, messages, brand, pages, email };
}

/** The domains of users, from those that others need to those that need others. */
async function openDomains(base: SaasBase, services: Awaited<ReturnType<typeof openServices>>) {
  const { fastify, context, userDocuments, values, runtime, host, publicUrl, mountedAt, mount } = base;
  const { accountAddress } = base;
  const { events, settings, messages, brand, pages, email } = services;
  const hooks = runtime.hooks && (await import('./auth/hooks.js')).createHooks(runtime.hooks, fastify.log);
  const billing = createBillingModule(context, {
    ...events,
    editCheckout: hooks?.checkoutSession,
    config: values,
    owners: billingOwners(userDocuments, organizationCollections(context.store).organizations),
    outbox: email.service,
    publicUrl,
    returnPathOf: (ownerId) => returnPathOf(values, accountAddress, ownerId),
  });
  await billing.loadPrices();
  const users = createUsersModule(context, {
    ...events,
    users: userDocuments,
    summaryOf: billing.summaryOf,
    siteName: settings.siteName,
    profileMark: billing.profileMark,
    profileChanged: billing.profileChanged,
    customers: billing.customers,
    hasFactor: createHasFactor(context.store),
    userRoles: values.userRoles,
    declaredFields: runtime.userFields,
  });
  const { mails } = createAccountMailsModule(context, {
    config: values,
    outbox: email.service,
    publicUrl,
    mountedAt,
    userFields: users.userFields,
  });
  const readUser = createReadUser(userDocuments, mails);
  const secondFactors = await openSecondFactors(base, { issuer: brand.name, readUser });
  const directory = openDirectory(base);
  const auth = createAuthModule(context, {
    ...events,
    config: values,
    tokenKinds: await registerSessionTokenKinds(fastify, mount, values),
    users,
    mails,
    secondFactors: secondFactors?.ofUsers,
    secrets: base.secrets,
    createEmailLogin: await openEmailLogin(base),
    siteName: settings.siteName,
    registrationAllowed: settings.registrationAllowed,
    admits: directory?.admits,
    hooks,
    publicUrl: host.publicUrl,
    origins: values.corsOrigin ?? [],
    pages,
    messages,
  });
  const findUser = createFindActiveUser(users, directory?.admits);
  const loginProviders = await openLoginProviders(base, { auth, readUser, messages });
  const hasUserFields = users.userFields !== undefined;
  const passkeys = await openPasskeys(base, { auth, readUser, messages, name: brand.name, hasUserFields });
  const people = loginProviders && directory?.connect(loginProviders);
  const agents = await openAgents(base, { findUser, events, readUser, name: brand.name, people });
  const organizations = await openOrganizations(base, { billing, users, auth, events, email });
  const keys = await openKeys(base, { auth, organizations, readUser, findUser });
  const operators = createOperators(base, auth);
  const signIn = { auth, secondFactors, loginProviders, passkeys, operators };
  return { billing, users, ...signIn, agents, organizations, keys };
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

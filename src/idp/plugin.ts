import type { FastifyInstance, FastifyRequest } from 'fastify';
import fp from 'fastify-plugin';
import { createAccountModule } from '../account/module.js';
import type { EmailModule, EmailModuleOptions } from '../email/module.js';
import { FACTOR_VERSION } from '../factors/store.js';
import { type Brand, createBrand } from '../http/brand.js';
import { answerRules, type HostContext, logConfiguration, pluginContext } from '../http/host-context.js';
import { createMessages, type Messages } from '../http/messages.js';
import { createRouteDescriptions, openApiPlugin } from '../http/openapi.js';
import { createPages, type Pages, wantsPage } from '../http/pages.js';
import { openScope, routeRules, type ScopeRules } from '../http/scope.js';
import { renderOAuth } from '../kernel/errors.js';
import type { KeyMaterial } from '../oidc/keys.js';
import { createOidcModule, type OidcModule } from '../oidc/module.js';
import { mountPath } from '../oidc/sessions.js';
import { CONSOLE_PATH } from '../operators/guard.js';
import { createOperatorsModule } from '../operators/module.js';
import { type AuditRecord, createAudit } from '../ops/audit.js';
import { createAuditSearch } from '../ops/audit-search.js';
import { healthPlugin } from '../ops/health.js';
import { metricsPlugin, openMetrics } from '../ops/metrics.js';
import { createDocuments, documentCollection } from '../outbound/documents.js';
import { createOutbound } from '../outbound/request.js';
import { passkeyCollection, readPasskeyVersion, removePasskeys } from '../passkeys/store.js';
import { createProvisioningModule } from '../provisioning/module.js';
import { createLastKnownAddress } from '../provisioning/store.js';
import { createResourcesModule } from '../resources/module.js';
import type { Mounted } from '../server/assembly.js';
import { openMeasuredStore } from '../server/measured-store.js';
import { createModuleContext, followLifecycle, type ModuleContext } from '../server/module-context.js';
import { rejectUnfinishedCopy } from '../server/unfinished-copy.js';
import { createAccountSignIn, createAccountSources, entrancePlugin } from './account.js';
import {
  adviseIdp,
  hasMailServer,
  type IdentityProviderOptions,
  type IdpConfiguration,
  idTokenAlgorithmsOf,
  type ResolvedIdp,
  resolveIdp,
} from './options.js';
import { createPasskeySignUp, openPasskeys } from './passkeys.js';
import { createClientDirectory, openRegistration } from './registration.js';
import { createSecondFactor, openFactors } from './second-factors.js';

/** The host's `fastify.idp`. */
export interface IdpDecorator {
  /** The issuer, exactly as in every id_token. */
  issuer(): string;
  /**
   * A link with which the first operator of the console chooses a user name and a password, once, within an hour; `null` if
   * the store contains a principal or an earlier link is valid. Nothing calls it but `idp serve`.
   */
  createFirstOperatorLink(): Promise<{ url: string; expiresAt: number } | null>;
}

declare module 'fastify' {
  interface FastifyInstance {
    idp: IdpDecorator;
  }
}

/** What people see. */
export interface Appearance {
  brand: Brand;
  pages: Pages;
  messages: Messages;
}

/** The pages for users. The default name is the host, because users know the issuer by it. */
export function createAppearance(values: IdpConfiguration, issuer: () => string): Appearance {
  const messages = createMessages(values);
  const brand = createBrand(values, () => new URL(issuer()).host);
  return { brand, pages: createPages(brand, messages), messages };
}

/** Renders errors as OAuth JSON, or as a page in a browser. */
export const createErrorRenderer =
  (pages: Pages): ScopeRules['renderError'] =>
  (error, request, requestId) =>
    (request.is404 || routeRules(request.routeOptions).page) && wantsPage(request.headers.accept)
      ? pages.renderError(error, request, requestId)
      : renderOAuth(error);

/** Creates the modules, mounts them on `fastify` and returns what they share. */
export async function mountIdp(
  fastify: FastifyInstance,
  { config, runtime }: ResolvedIdp,
  server?: Appearance & { hostContext: HostContext },
): Promise<Mounted> {
  if (fastify.hasDecorator('idp')) {
    throw new Error(
      "identityProvider is already registered on this instance, or another decorator is named 'idp'. Each registration serves one issuer.",
    );
  }
  logConfiguration(fastify, config, adviseIdp(config));
  const { values } = config;
  const { prefix, random } = runtime;
  const host =
    server?.hostContext ??
    pluginContext(
      fastify,
      { configured: values.publicUrl, port: 8080, path: fastify.prefix + prefix },
      random,
    );
  const issuer = host.publicUrl.get;
  const { brand, pages, messages } = server ?? createAppearance(values, issuer);
  const metrics = values.metrics ? await openMetrics('idp', runtime.metricsPeers) : undefined;
  const store = await openMeasuredStore(
    runtime.mongo ? { mongo: runtime.mongo, prefix: 'idp_' } : values.databaseUri,
    metrics,
  );
  fastify.addHook('onClose', () => store.close());
  await rejectUnfinishedCopy(store);
  if (!config.production) {
    const { remember } = createLastKnownAddress(store);
    fastify.addHook('onListen', () => remember(issuer()));
  }
  const context = createModuleContext(store, {
    ...runtime,
    production: config.production,
    log: fastify.log,
    createAudit,
    throttleSecret: values.ed25519Seed,
    metrics,
  });
  followLifecycle(fastify, context, values);

  // At the root of a host, the paths may belong to its own pages or to saas-backend.
  const ownsItsPaths = server !== undefined || prefix !== '';
  const hasAccountPages = runtime.accountPages ?? ownsItsPaths;

  // Also without the option: an account that is deleted or has a new owner loses its passkeys.
  const passkeyDocuments = passkeyCollection(store);
  const email = await openEmail(context, {
    config,
    messages,
    colours: brand.colours,
    publicUrl: issuer,
    settings: async () => ({ siteName: brand.name(), emailNotifications: true }),
    readUserVersion: async (sub, field) =>
      field === FACTOR_VERSION && factors
        ? factors.version(sub)
        : ((await readPasskeyVersion(passkeyDocuments, sub, field)) ??
          provisioning.readMailVersion(sub, field)),
  });
  const factors = await openFactors(context, values, {
    issuer: () => brand.name(),
    announce: (kind, sub, version, from) =>
      provisioning.announceFactor(sub, { kind, versionField: FACTOR_VERSION, version }, from),
  });
  const passkeys = await openPasskeys(context, values, {
    address: issuer,
    name: () => brand.name(),
    announce: (change, sub, from) => provisioning.announcePasskey(sub, change, from),
  });
  const uriRules = { allowHttp: !config.production, nativeSchemes: values.nativeSchemes ?? [] };
  const provisioning = createProvisioningModule(context, {
    issuer,
    mail: email && { outbox: email.service, messages },
    uriRules,
    isSignupOpen: !values.disableSignup,
    idTokenAlgorithms: idTokenAlgorithmsOf(values),
    adminToken: values.adminToken,
    inviteToken: values.inviteToken,
    // The owner of the address gets no mail about the passkeys of a stranger.
    removePasskeys: (sub, from) =>
      removePasskeys(sub, from, { passkeys: passkeyDocuments, audit: context.audit }),
    endSessions: (sub, change) => oidc.endSessions(sub, change),
    endClient: (id, change, by) => oidc.endClient(id, change, by),
    forgetConsents: (sub) => oidc.consents.forget(sub),
  });
  const secondFactor = factors && createSecondFactor(factors, { values, clock: context.clock, provisioning });
  const documents = createDocuments(documentCollection(store), {
    send: createOutbound({ reach: values.loopbackDocuments ? 'loopback' : 'public' }),
    clock: context.clock,
    onFailure: (uri, reason) => fastify.log.info({ uri, reason }, 'a document of a client cannot be read'),
  });
  context.jobs.add('document-purge', documents.purge);
  const registration = await openRegistration(context, values, {
    ...{ clients: provisioning.clients, uriRules, documents },
    endClient: (id, change, by) => oidc.endClient(id, change, by),
  });
  context.jobs.add('unused-client-purge', provisioning.clients.purge);
  const clientDirectory = createClientDirectory(provisioning.clients, registration?.metadataClients, context);
  const resources = createResourcesModule(context);
  const oidc = createOidcModule(context, {
    issuer,
    locales: messages.locales,
    keys: keyMaterial(values),
    directory: {
      authenticate: provisioning.principals.authenticate,
      findPrincipal: provisioning.principals.find,
      isDeleted: provisioning.directory.isDeleted,
      ...clientDirectory,
    },
    resources: { ...resources.service, findServer: resources.service.findById },
    isSignUpOpen: !values.disableSignup,
    clientRegistration: {
      acceptsMetadata: values.clientIdMetadata,
      acceptsRegistration: values.clientRegistration,
    },
    signUp: (input, from) => provisioning.principals.register({ ...input, kind: 'human' }, from),
    secondFactor,
    passkeys,
    passkeySignUp: passkeys && createPasskeySignUp(passkeys, provisioning.principals),
    createDeviceModule: values.deviceFlow
      ? (await import('../oidc/device/module.js')).createDeviceModule
      : undefined,
    hasAccountPages,
    trustedEmailDomains: values.trustedEmailDomains ?? [],
    humansUseBasic: values.basicLogin === 'all',
    readDocument: documents.read,
    callsPrivateNetworks: values.backchannelPrivateNetworks || !config.production,
  });

  const { principals, links, directory, clients } = provisioning;
  const signIn = oidc.ownPages({ pages });
  /** Removes what is stored about a deleted person elsewhere. */
  const forget = async (sub: string): Promise<void> => {
    await Promise.all([
      oidc.forget(sub),
      factors?.forget(sub),
      passkeyDocuments.deleteMany({ account: sub }),
    ]);
  };
  const mount = () => mountPath(issuer());
  const account = createAccountModule(context, {
    path: () => `${mount()}/account`,
    signOutHref: () => `${mount()}/logout`,
    pages,
    signIn: createAccountSignIn(signIn),
    hasAccountPages,
    sources: createAccountSources({
      ...{ principals, directory, consents: oidc.consents, sessions: oidc.sessions },
      delegations: oidc.delegations,
      findClient: clientDirectory.findClient,
      findResource: resources.service.find,
      verification: provisioning.verification,
      factors: secondFactor,
      passkeys,
      forget,
      audit: context.audit,
    }),
  });
  const operators = createOperatorsModule(context, {
    issuer,
    pages,
    signIn,
    sources: {
      principals: {
        ...directory,
        async deleteHuman(sub, from) {
          const deleted = await directory.deleteHuman(sub, from);
          if (deleted) await forget(sub);
          return deleted;
        },
        mintAgent: (input, from) => principals.mintAgent(input, from, true),
        rotate: principals.rotate,
      },
      links,
      clients,
      sessions: oidc.sessions,
      consents: oidc.consents,
      delegations: oidc.delegations,
      logoutFailures: oidc.logoutFailures,
      resources: resources.service,
      metadataClients: registration?.metadataClients,
      audit: { ...createAuditSearch(store.collection<AuditRecord>('audit')), record: context.audit.record },
      mails: email?.administration,
      keys: publishedKeys(values, oidc.publishedKeys),
    },
  });

  const createFirstOperatorLink = provisioning.firstOperator.offer;
  fastify.decorate('idp', Object.freeze({ issuer, createFirstOperatorLink }));
  const rules: ScopeRules = {
    ...answerRules(host),
    prefix,
    conflictRemedy: 'Mount the identity provider at another path with the prefix option.',
    guards: { ...provisioning.guards, ...oidc.guards, ...registration?.guards, ...account.guards },
    onResponse: metrics?.observeResponse,
    renderError: createErrorRenderer(pages),
    meter: context.throttle.countRequest,
    storeTimeoutMs: store.requestTimeoutMs,
    bodyLimit: 16 * 1024,
    // At the root of a host, the host handles unknown paths.
    handlesNotFound: prefix !== '',
    isPlugin: server === undefined,
    describeRoute: runtime.openapi
      ? await createRouteDescriptions('idp', (url) => url.slice((fastify.prefix + prefix).length))
      : undefined,
  };
  await openScope(fastify, rules, async (scope) => {
    const sessionOf = async (request: FastifyRequest) => (await signIn.userOf(request))?.principal ?? null;
    await scope.register(provisioning.plugin, { pages, hasAccountPages, sessionOf });
    await scope.register(resources.plugin);
    if (email) await scope.register(email.plugin);
    await scope.register(oidc.plugin, { pages });
    if (registration) await scope.register(registration.plugin);
    await scope.register(account.plugin, { prefix: '/account' });
    if (hasAccountPages) await scope.register(entrancePlugin, { own: signIn, mount });
    if (ownsItsPaths) {
      const mounts = [{ path: '', routesAt: fastify.prefix + prefix, reachedAt: () => '' }];
      await scope.register(openApiPlugin, { product: 'idp', serverUrl: issuer, mounts });
    }
    if (prefix !== '') await scope.register(healthPlugin, { store, wrap: (state) => state });
    // At the root, the server has the route.
    if (metrics && (prefix !== '' || !server)) await scope.register(metricsPlugin, { metrics });
  });
  if (runtime.console ?? ownsItsPaths) {
    const consoleRules: ScopeRules = {
      ...rules,
      prefix: prefix + CONSOLE_PATH,
      guards: operators.guards,
      conflictRemedy:
        'Mount the identity provider at another path with the prefix option, or leave out its console with console: false.',
      handlesNotFound: false,
    };
    await openScope(fastify, consoleRules, operators.plugin);
  }
  // RFC 8414 §3.1 inserts the well-known part before the path of the issuer, which only the root of a host can serve.
  if (new URL(issuer()).pathname !== '/' && fastify.prefix === '') {
    await openScope(fastify, { ...rules, prefix: '', handlesNotFound: false }, async (scope) => {
      await scope.register(oidc.pathMetadataPlugin);
    });
  }
  // All collections are declared here, so a faulty store prevents the start.
  await store.ready();
  return { store, metrics: metrics && { metrics, guard: provisioning.guards.metrics } };
}

/** The e-mail module, which is loaded only if a mail server is configured. */
async function openEmail(
  context: ModuleContext,
  options: EmailModuleOptions,
): Promise<EmailModule | undefined> {
  if (!hasMailServer(options.config.values)) return undefined;
  const { createEmailModule } = await import('../email/module.js');
  return createEmailModule(context, options);
}

const defined = (keys: (string | undefined)[]): string[] => keys.filter((key) => key !== undefined);

function keyMaterial(values: IdpConfiguration): KeyMaterial {
  const { ed25519Seed, ed25519SeedNext, ed25519SeedPrevious } = values;
  const { es256Key, es256KeyNext, es256KeyPrevious } = values;
  return {
    seeds: [ed25519Seed, ...defined([ed25519SeedNext, ed25519SeedPrevious])],
    es256Keys: defined([es256Key, es256KeyNext, es256KeyPrevious]),
    signsES256: es256Key !== undefined,
  };
}

/** What each key is for, in the order of `keyMaterial`. */
function publishedKeys(values: IdpConfiguration, published: OidcModule['publishedKeys']) {
  const usesOf = (current?: string, next?: string, previous?: string) => [
    ...(current === undefined ? [] : ['current' as const]),
    ...(next === undefined ? [] : ['next' as const]),
    ...(previous === undefined ? [] : ['previous' as const]),
  ];
  const uses = [
    ...usesOf(values.ed25519Seed, values.ed25519SeedNext, values.ed25519SeedPrevious),
    ...usesOf(values.es256Key, values.es256KeyNext, values.es256KeyPrevious),
  ];
  return published.flatMap((key, index) => {
    const use = uses[index];
    return use ? [{ ...key, use }] : [];
  });
}

/**
 * The identity provider as a Fastify plugin: OpenID Connect and provisioning at the root, or under `prefix`, which
 * is then the path of the issuer. Environment variables apply unless `env` is false; options take precedence.
 *
 * @throws ConfigurationError naming every problem of the configuration
 */
export const identityProvider = fp(
  async (fastify: FastifyInstance, options: IdentityProviderOptions) => {
    await mountIdp(fastify, resolveIdp(options));
  },
  { fastify: '5.x', name: 'identity-provider' },
);

import type { FastifyInstance } from 'fastify';
import fp from 'fastify-plugin';
import { createBrand } from '../http/brand.js';
import { isSimpleCrossSite } from '../http/browser.js';
import { answerRules, type HostContext, logConfiguration, pluginContext } from '../http/host-context.js';
import { createPages, type Pages, wantsPage } from '../http/pages.js';
import { type Guard, openScope, rulesOf, type ScopeRules } from '../http/scope.js';
import { MINUTE } from '../kernel/clock.js';
import { renderOAuth } from '../kernel/errors.js';
import { createInteractionTokens } from '../oidc/authorize/interaction-token.js';
import { createAuthorization } from '../oidc/authorize/service.js';
import { createClaims } from '../oidc/claims.js';
import { createConsentService } from '../oidc/consents.js';
import { createCookies } from '../oidc/cookies.js';
import { oidcErrors } from '../oidc/errors.js';
import { createHintReader } from '../oidc/hints.js';
import { createKeys } from '../oidc/keys.js';
import type { Directory } from '../oidc/model.js';
import { insertedMetadataPlugin, oidcPlugin } from '../oidc/plugin.js';
import { createPurges } from '../oidc/purge.js';
import { createSessionService } from '../oidc/sessions.js';
import { consentCollection, grantCollection, sessionCollection } from '../oidc/store.js';
import { createTokenService } from '../oidc/tokens/service.js';
import { createAudit } from '../ops/audit.js';
import { healthPlugin } from '../ops/health.js';
import { createProvisioningModule } from '../provisioning/module.js';
import { createLastKnownAddress } from '../provisioning/store.js';
import { createModuleContext, followLifecycle } from '../server/module-context.js';
import type { Store } from '../storage/collection.js';
import { openStore } from '../storage/open.js';
import { type Attempt, atMost, type Limit, type SecretKind } from '../throttle/throttle.js';
import {
  adviseIdp,
  type IdentityProviderOptions,
  type IdpConfiguration,
  type ResolvedIdp,
  resolveIdp,
} from './options.js';

/** The identity provider: the one place where its domains are put together. */

/** What the host gets: `fastify.idp`. */
export interface IdpDecorator {
  /** The issuer, as it stands in every id_token. */
  issuer(): string;
}

declare module 'fastify' {
  interface FastifyInstance {
    idp: IdpDecorator;
  }
}

/** Before anything is read or counted: forms of other sites must not use up the limits of their visitors' addresses. */
const refuseForms: Guard = async ({ headers }) => {
  if (isSimpleCrossSite(headers)) throw oidcErrors.invalid_request({ message: FORM_OF_ANOTHER_SITE });
};

const FORM_OF_ANOTHER_SITE =
  'Cross-site form submissions are rejected. Use fetch with CORS, or send the request from a server.';

/** Clients and agents prove themselves in the body as often as in the header, or by a password, so their endpoints judge them. */
const judgedByEndpoint: Guard = async () => {};

/** Wrong secrets from one address block, however they are presented. One kind never uses up the limit of another. */
const FAILURES: Record<SecretKind, Limit> = {
  password: atMost('failures', 60, MINUTE),
  agent: atMost('failures.agent', 60, MINUTE),
  client: atMost('failures.client', 60, MINUTE),
};

/** Errors as OAuth knows them, or as a page for whoever looks at one. */
export const idpErrors =
  (pages: Pages): ScopeRules['renderError'] =>
  (error, request, requestId) =>
    (request.is404 || rulesOf(request.routeOptions).page) && wantsPage(request.headers.accept)
      ? pages.renderError(error, requestId)
      : renderOAuth(error);

/** The pages for people. Without another name they go by the host, which is what people know the issuer by. */
export const idpPages = (values: IdpConfiguration, issuer: () => string): Pages =>
  createPages(createBrand(values, () => new URL(issuer()).host));

/** Builds the domains, mounts them on `fastify` and answers with the store they share. */
export async function mountIdp(
  fastify: FastifyInstance,
  { config, runtime }: ResolvedIdp,
  server?: { hostContext: HostContext; pages: Pages },
): Promise<Store> {
  if (fastify.hasDecorator('idp')) {
    throw new Error(
      "identityProvider is already registered on this instance, or another decorator is named 'idp'. Each registration serves one issuer.",
    );
  }
  logConfiguration(fastify, config, adviseIdp(config));
  const { values } = config;
  const { clock, random, prefix } = runtime;
  const host =
    server?.hostContext ??
    pluginContext(
      fastify,
      { configured: values.publicUrl, port: 8080, path: fastify.prefix + prefix },
      random,
    );
  const store = await openStore(
    runtime.mongo ? { mongo: runtime.mongo, prefix: 'idp_' } : values.databaseUri,
  );
  fastify.addHook('onClose', () => store.close());

  const issuer = host.publicUrl.get;
  if (!config.production) {
    const { remember } = createLastKnownAddress(store);
    fastify.addHook('onListen', () => remember(issuer()));
  }
  const pages = server?.pages ?? idpPages(values, issuer);
  const context = createModuleContext(store, {
    ...runtime,
    production: config.production,
    log: fastify.log,
    createAudit,
    throttleSecret: values.ed25519Seed,
  });
  followLifecycle(fastify, context, values);
  const { audit, throttle, jobs } = context;
  const tools = { audit, clock, random };
  const attempt: Attempt = (guess, evaluate) =>
    throttle.attempt(Object.assign({}, guess, { perAddress: FAILURES[guess.kind ?? 'password'] }), evaluate);
  const provisioning = createProvisioningModule(context, {
    issuer,
    allowHttp: !config.production,
    isSignupOpen: !values.disableSignup,
    adminToken: values.adminToken,
    inviteToken: values.inviteToken,
  });
  const directory: Directory = {
    authenticate: provisioning.principals.authenticate,
    findPrincipal: provisioning.principals.find,
    isDeleted: provisioning.directory.isDeleted,
    findClient: provisioning.clients.find,
  };
  const grants = grantCollection(store);
  const otherSeeds = [values.ed25519SeedNext, values.ed25519SeedPrevious].filter(
    (seed) => seed !== undefined,
  );
  const seeds = [values.ed25519Seed, ...otherSeeds] as const;
  const keys = createKeys(seeds);
  const readHint = createHintReader(keys, issuer);
  const claimsOf = createClaims(values.trustedEmailDomains ?? []);
  const tokens = createTokenService({ ...tools, grants, directory, keys, claimsOf, issuer, seeds });
  const interactionTokens = createInteractionTokens(seeds, { clock });
  const authorization = createAuthorization({
    ...tools,
    grants,
    interactionTokens,
    directory,
    readHint,
    issuer,
  });
  const kept = {
    grants,
    sessions: sessionCollection(store),
    consents: consentCollection(store),
  };
  const sessions = createSessionService({ ...tools, sessions: kept.sessions, directory });
  const consents = createConsentService(kept.consents, clock);

  for (const [name, job] of Object.entries(createPurges({ ...kept, directory, clock }))) jobs.add(name, job);

  fastify.decorate('idp', Object.freeze({ issuer }));
  const rules: ScopeRules = {
    ...answerRules(host),
    prefix,
    conflictRemedy: 'Mount the identity provider at another path with the prefix option.',
    guards: {
      ...provisioning.guards,
      client: refuseForms,
      bearer: judgedByEndpoint,
    },
    renderError: idpErrors(pages),
    meter: throttle.refusalOf,
    bodyLimit: 16 * 1024,
    // At the root of a host, unknown paths are the host's.
    own404: prefix !== '',
    isPlugin: server === undefined,
  };
  await openScope(fastify, rules, async (scope) => {
    await scope.register(provisioning.plugin, { pages });
    await scope.register(oidcPlugin, {
      authorization,
      sessions,
      consents,
      cookies: createCookies(issuer),
      pages,
      readHint,
      changePassword: provisioning.principals.changePassword,
      clock,
      directory,
      tokens,
      keys,
      audit,
      attempt,
      issuer,
      meter: throttle.refusalOf,
      humansUseBasic: values.basicLogin === 'all',
    });
    if (prefix !== '') await scope.register(healthPlugin, { store, wrap: (state) => state });
  });
  // Elsewhere than at the root there is no such place.
  if (new URL(issuer()).pathname !== '/' && fastify.prefix === '') {
    await openScope(fastify, { ...rules, prefix: '', own404: false }, async (scope) => {
      await scope.register(insertedMetadataPlugin, { issuer });
    });
  }
  // Every collection is declared by now: what is wrong with the store stops the start.
  await store.ready();
  return store;
}

/**
 * The identity provider as a Fastify plugin: OpenID Connect and provisioning at the root, or under `prefix`, with
 * which the issuer then ends. Reads the environment unless `env` says otherwise; passed options win.
 *
 * @throws ConfigurationError naming every problem of the configuration
 */
export const identityProvider = fp(
  async (fastify: FastifyInstance, options: IdentityProviderOptions) => {
    await mountIdp(fastify, resolveIdp(options));
  },
  { fastify: '5.x', name: 'identity-provider' },
);

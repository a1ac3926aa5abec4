import type { FastifyInstance } from 'fastify';
import fp from 'fastify-plugin';
import { type HostContext, logConfiguration, pluginContext } from '../core/http/host-context.js';
import type { Mounted } from '../core/server/assembly.js';
import { contributePasskeys } from '../shared/passkeys/store.js';
import { createAccount } from './account.js';
import { type Appearance, createAppearance } from './appearance.js';
import { createConsole } from './console.js';
import { type IdpContext, openContext } from './context.js';
import { createDecorator } from './decorator.js';
import type { IdentityProviderOptions } from './documented-options.js';
import { openEmail } from './email.js';
import {
  createPasskeySignUp,
  createReadPerson,
  createSecondFactor,
  openFactors,
  openPasskeys,
} from './logins.js';
import type { IdpModules } from './modules.js';
import { createGrantedAccess } from './oidc/granted-access.js';
import { createOidcModule } from './oidc/module.js';
import { idpWarnings, idTokenAlgorithmsOf, type ResolvedIdp, resolveIdp, uriRulesOf } from './options.js';
import { createPersonMails } from './provisioning/mails.js';
import { createProvisioningModule } from './provisioning/module.js';
import { createLastKnownAddress, findActive, principalCollection } from './provisioning/store.js';
import { createDirectory, createPublicDocuments, openRegistration, openTrust } from './registration.js';
import { createResourcesModule } from './resources/module.js';
import { logSignUpWarnings } from './resources/warnings.js';
import { registerIdpRoutes } from './routes.js';

/** Creates the modules, mounts them on `fastify` and returns what they share. */
export async function mountIdp(
  fastify: FastifyInstance,
  resolved: ResolvedIdp,
  server?: Appearance & { hostContext: HostContext },
): Promise<Mounted> {
  if (fastify.hasDecorator('idp')) {
    throw new Error(
      "identityProvider is already registered on this instance, or another decorator is named 'idp'. Each registration serves one issuer.",
    );
  }
  const { config, runtime } = resolved;
  logConfiguration(fastify, config, idpWarnings(config));
  const { prefix, random } = runtime;
  const { publicUrl } = config.values;
  const mount = { configured: publicUrl, port: 8080, path: fastify.prefix + prefix };
  const host = server?.hostContext ?? pluginContext(fastify, mount, random);
  const issuer = host.publicUrl.get;
  const { brand, pages, messages } = server ?? createAppearance(config.values, issuer);
  // At the root of a host, the paths may belong to its own pages or to saas-backend.
  const ownsItsPaths = server !== undefined || prefix !== '';
  const hasAccountPages = runtime.accountPages ?? ownsItsPaths;
  const context = await openContext(fastify, resolved, { issuer, brand, pages, messages, hasAccountPages });
  if (!config.production) {
    const { remember } = createLastKnownAddress(context.store);
    fastify.addHook('onListen', () => remember(issuer()));
  }

  const modules = await openModules(context);
  const { guards } = modules.provisioning;
  fastify.decorate('idp', createDecorator(issuer, modules.provisioning));
  await registerIdpRoutes(fastify, modules, { context, runtime, host, ownsItsPaths, isServer: !!server });
  // All collections are declared here, so a faulty store prevents the start.
  await context.store.ready();
  if (!config.values.disableSignup) await logSignUpWarnings(modules.resources.service, context.log);
  const { store, metrics } = context;
  return { store, metrics: metrics && { metrics, guard: guards.metrics } };
}

/** The modules of the provider. Each gets what it needs from those above it. */
async function openModules(context: IdpContext): Promise<IdpModules> {
  const { values, store, jobs, issuer } = context;
  const { adminToken, inviteToken, clientIdMetadata, clientRegistration } = values;
  const people = principalCollection(store);
  const isSignupOpen = !values.disableSignup;
  contributePasskeys(context);

  const resourcesModule = createResourcesModule(context);
  const resources = resourcesModule.service;
  const granted = createGrantedAccess(context, {
    resources,
    findPrincipal: findActive(people),
    wake: () => void jobs.runNow('backchannel-logout'),
  });
  const { endSessions, endClient, consents } = granted;
  const email = await openEmail(context);
  const mails = email && createPersonMails({ ...context, outbox: email.service });
  const readPerson = createReadPerson(people, mails);
  const factors = await openFactors(context, readPerson);
  const passkeys = await openPasskeys(context, readPerson);
  const provisioning = createProvisioningModule(context, {
    issuer,
    isSignupOpen,
    adminToken,
    inviteToken,
    uriRules: uriRulesOf(context),
    idTokenAlgorithms: idTokenAlgorithmsOf(values),
    mails,
    trustForCodes: factors?.trust,
    endSessions,
    endClient,
    forgetConsents: consents.forget,
  });
  const { principals, clients } = provisioning;
  const secondFactor = factors && createSecondFactor(context, factors, provisioning.verification);
  const documents = createPublicDocuments(context);
  const registration = await openRegistration(context, { clients, documents, endClient });
  const directory = createDirectory(context, provisioning, registration?.metadataClients);
  const oidc = await createOidcModule(context, {
    locales: context.messages.locales,
    isSignUpOpen: isSignupOpen,
    clientRegistration: { acceptsMetadata: clientIdMetadata, acceptsRegistration: clientRegistration },
    directory,
    resources,
    granted,
    signUp: (input, source) => principals.register({ ...input, kind: 'human' }, source),
    secondFactor,
    passkeys,
    passkeySignUp: passkeys && createPasskeySignUp(passkeys, principals),
    trust: await openTrust(context),
    readDocument: documents.read,
  });
  const shared = { provisioning, oidc, consents, resources };
  const account = createAccount(context, { ...shared, directory, secondFactor, passkeys });
  const console = createConsole(context, { ...shared, registration, email });

  return { provisioning, resources: resourcesModule, email, oidc, registration, account, console };
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

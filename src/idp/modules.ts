import type { FastifyBaseLogger } from 'fastify';
import type { AuditRecord } from '../core/ops/audit.js';
import { createAuditSearch } from '../core/ops/audit-search.js';
import { createDocuments, documentCollection } from '../core/outbound/documents.js';
import { createOutbound } from '../core/outbound/request.js';
import type { ModuleContext } from '../core/server/module-context.js';
import { createAccountModule } from '../shared/account-pages/module.js';
import type { EmailModule, EmailModuleOptions } from '../shared/email/module.js';
import { FACTOR_VERSION, factorCollection, removeFactor } from '../shared/factors/store.js';
import { passkeyCollection, readPasskeyVersion, removePasskeys } from '../shared/passkeys/store.js';
import { createAccountSignIn, createAccountSources } from './account.js';
import type { Appearance } from './appearance.js';
import { createOperatorsModule } from './console/module.js';
import { keyMaterial, publishedKeys } from './keys.js';
import { createOidcModule } from './oidc/module.js';
import { mountPath } from './oidc/sessions.js';
import { hasMailServer, idTokenAlgorithmsOf, type ResolvedIdp } from './options.js';
import { createPasskeySignUp, openPasskeys } from './passkeys.js';
import { createProvisioningModule } from './provisioning/module.js';
import { createClientDirectory, openRegistration } from './registration.js';
import { createResourcesModule } from './resources/module.js';
import { createSecondFactor, openFactors } from './second-factors.js';
import { subjectLinkCollection } from './trust/store.js';
import { openIdentityAssertions } from './trust.js';

export interface IdpModulesOptions extends Appearance {
  config: ResolvedIdp['config'];
  issuer(): string;
  hasAccountPages: boolean;
  log: Pick<FastifyBaseLogger, 'info'>;
}

/** Creates the modules of the provider, each of which gets what it needs from the others. */
export async function createIdpModules(
  context: ModuleContext,
  { config, issuer, hasAccountPages, brand, pages, messages, log }: IdpModulesOptions,
) {
  const { values } = config;
  const { store } = context;
  // Also without the option: an account that is deleted or has a new owner loses its passkeys.
  const passkeyDocuments = passkeyCollection(store);
  const subjectLinks = subjectLinkCollection(store);
  const { ed25519Seed, ed25519SeedNext, ed25519SeedPrevious } = values;
  const email = await openEmail(context, {
    config,
    // Another process may have begun the next step of a rotation.
    secrets: [ed25519Seed, ed25519SeedNext, ed25519SeedPrevious].filter((seed) => seed !== undefined),
    previousVariable: 'IDP_ED25519_SEED_PREVIOUS',
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
    // The owner of the address gets no mail about what a stranger has set up.
    removeOtherLogins: (sub, from) =>
      Promise.all([
        removePasskeys(sub, from, { passkeys: passkeyDocuments, audit: context.audit }),
        factors && removeFactor(sub, from, { factors: factorCollection(store), ...context }),
      ]),
    trustForCodes: async (sub, ip) => factors?.trust(sub, ip),
    endSessions: (sub, change) => oidc.endSessions(sub, change),
    endClient: (id, change, by) => oidc.endClient(id, change, by),
    forgetConsents: (sub) => oidc.consents.forget(sub),
  });
  const secondFactor = factors && createSecondFactor(factors, { values, clock: context.clock, provisioning });
  const documents = createDocuments(documentCollection(store), {
    send: createOutbound({ reach: values.loopbackDocuments ? 'loopback' : 'public' }),
    clock: context.clock,
    onFailure: (uri, reason) => log.info({ uri, reason }, 'a document of a client cannot be read'),
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
      findByHandle: provisioning.directory.findByHandle,
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
      ? (await import('./oidc/device/module.js')).createDeviceModule
      : undefined,
    identityAssertions: await openIdentityAssertions(store, values),
    hasAccountPages,
    trustedEmailDomains: values.trustedEmailDomains ?? [],
    refreshReuseWindow: values.refreshTokenReuseWindow,
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
      subjectLinks.deleteMany({ principal: sub }),
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

  return { provisioning, resources, email, oidc, registration, account, operators, signIn };
}

export type IdpModules = Awaited<ReturnType<typeof createIdpModules>>;

/** The e-mail module, which is loaded only if a mail server is configured. */
async function openEmail(
  context: ModuleContext,
  options: EmailModuleOptions,
): Promise<EmailModule | undefined> {
  if (!hasMailServer(options.config.values)) return undefined;
  const { createEmailModule } = await import('../shared/email/module.js');
  return createEmailModule(context, options);
}

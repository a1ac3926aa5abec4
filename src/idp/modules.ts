import type { FactorService } from '../shared/factors/service.js';
import { passkeyCollection } from '../shared/passkeys/store.js';
import { createAccount } from './account.js';
import { createConsole } from './console.js';
import type { IdpContext } from './context.js';
import { openEmail } from './email.js';
import {
  createLoginMails,
  createPasskeySignUp,
  createRemovalOfLogins,
  createSecondFactor,
  openFactors,
  openPasskeys,
} from './logins.js';
import { createGrantedAccess } from './oidc/granted-access.js';
import { createOidcModule, type OidcModule } from './oidc/module.js';
import { idTokenAlgorithmsOf, uriRulesOf } from './options.js';
import { createPersonMails } from './provisioning/mails.js';
import { createProvisioningModule } from './provisioning/module.js';
import { findActive, principalCollection } from './provisioning/store.js';
import { createClientDirectory, createPublicDocuments, openRegistration } from './registration.js';
import { createResourcesModule } from './resources/module.js';
import { subjectLinkCollection } from './trust/store.js';

/** The modules of the provider. Each gets what it needs from those above it. */
export async function createIdpModules(context: IdpContext) {
  const { values, store, messages, jobs } = context;
  const people = principalCollection(store);
  const isSignUpOpen = !values.disableSignup;

  const resources = createResourcesModule(context);
  const granted = createGrantedAccess(context, {
    resources: resources.service,
    findPrincipal: findActive(people),
    wake: () => void jobs.runNow('backchannel-logout'),
  });
  const email = await openEmail(context);
  const mails = email && createPersonMails({ ...context, outbox: email.service });
  const announce = mails && createLoginMails(people, mails);
  const factors = await openFactors(context, announce?.factor);
  const passkeys = await openPasskeys(context, announce?.passkey);
  const provisioning = createProvisioningModule(context, {
    ...values,
    issuer: context.issuer,
    isSignupOpen: isSignUpOpen,
    uriRules: uriRulesOf(context),
    idTokenAlgorithms: idTokenAlgorithmsOf(values),
    mails,
    removeOtherLogins: createRemovalOfLogins(context),
    trustForCodes: factors?.trust,
    endSessions: granted.endSessions,
    endClient: granted.endClient,
    forgetConsents: granted.consents.forget,
  });
  const { principals, clients, directory, verification } = provisioning;
  const secondFactor = factors && createSecondFactor(context, factors, verification);
  const documents = createPublicDocuments(context);
  const { endClient } = granted;
  const registration = await openRegistration(context, { clients, documents, endClient });
  const clientDirectory = createClientDirectory(clients, registration?.metadataClients, context);
  const oidc = await createOidcModule(context, {
    ...context,
    locales: messages.locales,
    isSignUpOpen,
    clientRegistration: {
      acceptsMetadata: values.clientIdMetadata,
      acceptsRegistration: values.clientRegistration,
    },
    directory: {
      ...clientDirectory,
      authenticate: principals.authenticate,
      findByHandle: directory.findByHandle,
      findPrincipal: principals.find,
      isDeleted: directory.isDeleted,
    },
    resources: { ...resources.service, findServer: resources.service.findById },
    granted,
    signUp: (input, source) => principals.register({ ...input, kind: 'human' }, source),
    secondFactor,
    passkeys,
    passkeySignUp: passkeys && createPasskeySignUp(passkeys, principals),
    trust: await openTrust(context),
    readDocument: documents.read,
  });
  const forget = createRemovalOfPeople(context, { oidc, factors });
  const shared = { provisioning, oidc, granted, resources, clientDirectory, registration, email, forget };
  const account = createAccount(context, { ...shared, secondFactor, passkeys });
  const console = createConsole(context, shared);

  return { provisioning, resources, email, oidc, registration, account, console };
}

export type IdpModules = Awaited<ReturnType<typeof createIdpModules>>;

/** Loads which other providers are trusted, if identity assertions are enabled. */
async function openTrust({ store, values }: IdpContext) {
  if (values.identityAssertions === 'off') return undefined;
  const { createTrustService } = await import('./trust/service.js');
  return createTrustService(store);
}

/** Removes what is stored about a deleted person beside the account, also while it is not configured. */
function createRemovalOfPeople(
  { store }: IdpContext,
  { oidc, factors }: { oidc: OidcModule; factors: FactorService | undefined },
): (sub: string) => Promise<void> {
  const [passkeys, subjectLinks] = [passkeyCollection(store), subjectLinkCollection(store)];
  return async (sub) => {
    await Promise.all([
      oidc.forget(sub),
      factors?.forget(sub),
      passkeys.deleteMany({ account: sub }),
      subjectLinks.deleteMany({ principal: sub }),
    ]);
  };
}

import type { RequestSource } from '../core/http/routes.js';
import { contributePasskeys } from '../shared/passkeys/store.js';
import { createAccount } from './account.js';
import { createReadPrincipal, leavingWithGroup, openPermissions } from './agents.js';
import { openAttention } from './attention.js';
import { openBranding } from './branding.js';
import { createConsoleModule } from './console/module.js';
import type { IdpContext } from './context.js';
import { createPersonDirectory } from './directory.js';
import { openEmail } from './email.js';
import { createGroupsModule } from './groups/module.js';
import {
  createPasskeySignUp,
  createReadPerson,
  createSecondFactor,
  openFactors,
  openPasskeys,
} from './logins.js';
import { createIsVerified, RESERVED_CLAIMS } from './oidc/claims.js';
import type { SignUp } from './oidc/directory.js';
import { createGrantedAccess } from './oidc/granted-access.js';
import { createOidcModule } from './oidc/module.js';
import { clientRegistrationOf, idTokenAlgorithmsOf, uriRulesOf } from './options.js';
import { createPermissionsModule } from './permissions/module.js';
import { createPersonMails } from './provisioning/mails.js';
import { createProvisioningModule } from './provisioning/module.js';
import { type PrincipalDocument, principalCollection } from './provisioning/store.js';
import { createDirectory, createPublicDocuments, openRegistration, openTrust } from './registration.js';
import { createResourcesModule } from './resources/module.js';

/** The modules of the provider, for the files that use several of them. Undefined: not configured. */
export type IdpModules = Awaited<ReturnType<typeof openModules>>;

/** The modules of the provider. Each gets what it needs from those above it. */
export async function openModules(context: IdpContext) {
  const { values, store, jobs, issuer, clock } = context;
  const { adminToken, inviteToken } = values;
  const people = principalCollection(store);
  const isSignupOpen = !values.disableSignup;
  // A stolen administrator token must not let an agent in.
  const hasOwnInviter = inviteToken !== undefined && inviteToken !== adminToken;
  contributePasskeys(context);

  const resourcesModule = createResourcesModule(context);
  const resources = resourcesModule.service;
  const isVerified = createIsVerified(values.trustedEmailDomains ?? []);
  const groupsModule = createGroupsModule<PrincipalDocument>(context, {
    isVerified,
    leaving: leavingWithGroup(() => ({ permissions, agents: provisioning.agents })),
  });
  const groups = groupsModule.service;
  const permissions = openPermissions(context, { groups, resources, revocations: () => granted.revocations });
  const readPrincipal = createReadPrincipal({ people, groups, clock }, permissions);
  const { findPrincipal, isSubject } = readPrincipal;
  const granted = createGrantedAccess(context, {
    resources,
    findPrincipal,
    wake: () => void jobs.runNow('backchannel-logout'),
  });
  const { endSessions, endClient, consents } = granted;
  const email = await openEmail(context);
  const mails = email && createPersonMails({ ...context, isVerified, outbox: email.service });
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
    groups,
    permissions,
    reservedClaims: RESERVED_CLAIMS,
    endClient,
    forgetConsents: consents.forget,
  });
  const { principals, clients } = provisioning;
  const secondFactor = factors && createSecondFactor(context, factors, provisioning.verification);
  const documents = createPublicDocuments(context);
  const registration = await openRegistration(context, { clients, documents, endClient });
  const directory = createDirectory(context, provisioning, readPrincipal, registration?.metadataClients);
  const openApprovals = values.approvals
    ? (await import('./oidc/approvals/service.js')).createApprovals
    : undefined;
  const oidcOptions = {
    locales: context.messages.locales,
    isSignUpOpen: isSignupOpen,
    clientRegistration: clientRegistrationOf(values),
    directory,
    resources,
    groups,
    isVerified,
    granted,
    signUp: async (input: Parameters<SignUp>[0], source: RequestSource) => ({
      ...(await principals.register({ ...input, kind: 'human' }, source)),
      groups: [],
    }),
    secondFactor,
    passkeys,
    passkeySignUp: passkeys && createPasskeySignUp(passkeys, principals),
    trust: await openTrust(context),
    mailApproval: mails?.approvalRequested,
    readDocument: documents.read,
  };
  const oidc = createOidcModule(context, oidcOptions, openApprovals);
  const shared = { provisioning, oidc, consents, resources, groups, permissions };
  const account = createAccount(context, { ...shared, directory, secondFactor, passkeys });
  const console = createConsoleModule(context, {
    ...shared,
    registration,
    email,
    branding: openBranding(context, { oidc, email }),
  });
  openAttention(context, { email, console });

  return {
    provisioning,
    personDirectory: createPersonDirectory(context, {
      ...{ findPrincipal, isVerified, clients, resources, groups, permissions, granted },
    }),
    groups: groupsModule,
    mayJoin: async (group: string, { kind }: { kind: string }) =>
      kind !== 'agent' || hasOwnInviter || !(await permissions.hasGroup(group)),
    resources: resourcesModule,
    permissions: createPermissionsModule({
      service: permissions,
      findResource: resources.find,
      hasOwnInviter,
      exists: isSubject,
    }),
    email,
    oidc,
    registration,
    account,
    console,
  };
}

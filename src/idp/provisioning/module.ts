import { authenticatedByRoute, type Guard, type Scope } from '../../core/http/scope.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { UriRules } from './client-uris.js';
import { type Clients, createClients, type EndClient, type IdTokenAlgorithm } from './clients.js';
import { createDirectory, type PrincipalDirectory } from './directory.js';
import { createFirstOperator, type FirstOperator, setupCollection } from './first-operator.js';
import { adminGuard, signupGuard } from './guards.js';
import { createLinks, type LinkDependencies, type Links, type RemoveOtherLogins } from './links.js';
import { createPersonMails, type MailDependencies, type PersonMails, readMailVersion } from './mails.js';
import { createOperatorRoles, type OperatorRoles } from './operators.js';
import { type ProvisioningPluginOptions, provisioningPlugin } from './plugin.js';
import { createPrincipals, type EndSessions, type Principals } from './principals.js';
import { createRecovery } from './recovery.js';
import { clientCollection, principalCollection } from './store.js';
import { type AddressVerification, createVerification } from './verification.js';

/** Principals, who sign in, and clients, which they sign in to. */
export interface ProvisioningModule {
  principals: Principals;
  links: Links;
  clients: Clients;
  directory: PrincipalDirectory;
  operators: OperatorRoles;
  firstOperator: Pick<FirstOperator, 'offer'>;
  /** Absent without a mail server. */
  verification: AddressVerification | undefined;
  /** For the send conditions of mails. */
  readMailVersion(sub: string, field: string): Promise<number | null>;
  /** Enqueues the mail about a change of the second factor. Without a mail server, it does nothing. */
  announceFactor(
    sub: string,
    change: Parameters<PersonMails['secondFactorChanged']>[1],
    from: Parameters<PersonMails['secondFactorChanged']>[2],
  ): Promise<void>;
  /** Enqueues the mail about a new or removed passkey. Without a mail server, it does nothing. */
  announcePasskey(
    sub: string,
    change: Parameters<PersonMails['passkeyChanged']>[1],
    from: Parameters<PersonMails['passkeyChanged']>[2],
  ): Promise<void>;
  /** The access levels of the routes below. */
  guards: Record<'admin' | 'metrics' | 'inviter' | 'signup' | 'agent', Guard>;
  plugin(
    scope: Scope,
    options: Pick<ProvisioningPluginOptions, 'pages' | 'hasAccountPages' | 'sessionOf'>,
  ): Promise<void>;
}

export interface ProvisioningModuleOptions {
  issuer(): string;
  uriRules: UriRules;
  isSignupOpen: boolean;
  /** Without it, people get no mails and cannot reset their passwords themselves. */
  mail?: MailDependencies | undefined;
  /** Without it, the administrator endpoints are disabled. */
  adminToken?: string | undefined;
  /** Without it, the administrator token can invite users. */
  inviteToken?: string | undefined;
  /** The algorithms for which the provider has a key. */
  idTokenAlgorithms: readonly IdTokenAlgorithm[];
  removeOtherLogins?: RemoveOtherLogins | undefined;
  trustForCodes?: LinkDependencies['trustForCodes'];
  /** Runs a change that ends all sessions of a principal. */
  endSessions: EndSessions;
  endClient: EndClient;
  /** Removes what a person has allowed applications. Absent where no link is used. */
  forgetConsents?(sub: string): Promise<void>;
}

export function createProvisioningModule(
  context: Pick<
    ModuleContext,
    | 'store'
    | 'audit'
    | 'clock'
    | 'random'
    | 'log'
    | 'throttle'
    | 'passwords'
    | 'passwordPolicy'
    | 'unknownWrites'
    | 'backgroundTasks'
  >,
  {
    issuer,
    uriRules,
    isSignupOpen,
    mail,
    adminToken,
    inviteToken = adminToken,
    idTokenAlgorithms,
    endClient,
    removeOtherLogins,
    trustForCodes,
    endSessions,
    forgetConsents,
  }: ProvisioningModuleOptions,
): ProvisioningModule {
  const collection = principalCollection(context.store);
  const mails = mail && createPersonMails({ ...mail, ...context });
  const principals = createPrincipals(collection, {
    ...{ ...context, endSessions, mails },
    verifyAddress: (person, from) => verification?.begin(person, from) ?? Promise.resolve(),
  });
  const { authenticate } = principals;
  const verification = mails && createVerification(collection, { ...context, mails, authenticate, issuer });
  const recovery = mails && createRecovery(collection, { ...context, mails, issuer });
  const firstOperator = createFirstOperator(setupCollection(context.store), collection, {
    ...context,
    issuer,
  });
  const links = createLinks(collection, {
    ...{ ...context, firstOperator, mails, issuer, endSessions },
    ...{ forgetConsents, removeOtherLogins, trustForCodes },
  });
  const clients = createClients(clientCollection(context.store), {
    ...context,
    uriRules,
    idTokenAlgorithms,
    endClient,
  });
  const directory = createDirectory(collection, { ...context, mails, endSessions });
  const { audit, throttle } = context;
  const inOutage = { attemptAsOperator: throttle.attemptAsOperatorInOutage };
  return {
    principals,
    links,
    clients,
    directory,
    operators: createOperatorRoles(collection, context),
    firstOperator,
    verification,
    readMailVersion: (sub, field) => readMailVersion(collection, sub, field),
    async announceFactor(sub, change, from) {
      const person = mails && (await collection.findOne({ id: sub }));
      if (person) await mails.secondFactorChanged(person, change, from);
    },
    async announcePasskey(sub, change, from) {
      const person = mails && (await collection.findOne({ id: sub }));
      if (person) await mails.passkeyChanged(person, change, from);
    },
    guards: {
      admin: adminGuard(adminToken, context),
      metrics: adminGuard(adminToken, { audit, throttle: inOutage }),
      inviter: adminGuard(inviteToken, context),
      signup: signupGuard(isSignupOpen),
      agent: authenticatedByRoute,
    },
    plugin: (scope, options) =>
      provisioningPlugin(scope, {
        ...{ principals, links, clients, directory, issuer, isSignupOpen, ...options },
        mailed: recovery && verification && { recovery, verification },
        // As for people: only who may invite can give somebody an address that applications trust.
        adminVouchesForAgents: inviteToken === adminToken,
      }),
  };
}

import { authenticatedByRoute, type FastifyTypebox } from '../../core/http/routes.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { UriRules } from './client-uris.js';
import { createClients, type EndClient, type IdTokenAlgorithm } from './clients.js';
import { createDirectory } from './directory.js';
import { createFirstOperator, setupCollection } from './first-operator.js';
import { adminGuard, signupGuard } from './guards.js';
import { createLinks, type LinkDependencies, type RemoveOtherLogins } from './links.js';
import type { PersonMails } from './mails.js';
import { createOperatorRoles } from './operators.js';
import { type ProvisioningPluginOptions, provisioningPlugin } from './plugin.js';
import { createPrincipals, type EndSessions } from './principals.js';
import { createRecovery } from './recovery.js';
import { clientCollection, principalCollection } from './store.js';
import { createVerification, createVerificationMails } from './verification.js';

export interface ProvisioningModuleOptions {
  issuer(): string;
  uriRules: UriRules;
  isSignupOpen: boolean;
  /** Without it, people get no mails and cannot reset their passwords themselves. */
  mails?: PersonMails | undefined;
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

/** Principals, who sign in, and clients, which they sign in to. */
export function createProvisioningModule(
  context: Pick<
    ModuleContext,
    | 'store'
    | 'audit'
    | 'clock'
    | 'random'
    | 'log'
    | 'throttle'
    | 'jobs'
    | 'passwords'
    | 'passwordPolicy'
    | 'unknownWrites'
    | 'backgroundTasks'
  >,
  options: ProvisioningModuleOptions,
) {
  const { issuer, isSignupOpen, mails, adminToken, inviteToken = adminToken } = options;
  const collection = principalCollection(context.store);
  const shared = { ...context, ...options };
  const verifyAddress = mails && createVerificationMails(collection, { ...shared, mails });
  const principals = createPrincipals(collection, { ...shared, verifyAddress });
  const { authenticate } = principals;
  const verification =
    verifyAddress && createVerification(collection, { ...context, verifyAddress, authenticate });
  const recovery = mails && createRecovery(collection, { ...shared, mails });
  const firstOperator = createFirstOperator(setupCollection(context.store), collection, shared);
  const links = createLinks(collection, { ...shared, firstOperator });
  const clients = createClients(clientCollection(context.store), shared);
  const directory = createDirectory(collection, shared);
  context.jobs.add('unused-client-purge', clients.purge);
  const { audit, throttle } = context;
  const inOutage = { attemptAsOperator: throttle.attemptAsOperatorInOutage };
  return {
    principals,
    links,
    clients,
    directory,
    operators: createOperatorRoles(collection, context),
    firstOperator,
    /** Absent without a mail server. */
    verification,
    /** The access levels of the routes below. */
    guards: {
      admin: adminGuard(adminToken, context),
      metrics: adminGuard(adminToken, { audit, throttle: inOutage }),
      inviter: adminGuard(inviteToken, context),
      signup: signupGuard(isSignupOpen),
      agent: authenticatedByRoute,
    },
    plugin: (
      fastify: FastifyTypebox,
      pages: Pick<ProvisioningPluginOptions, 'pages' | 'hasAccountPages' | 'sessionOf'>,
    ): Promise<void> =>
      provisioningPlugin(fastify, {
        principals,
        links,
        clients,
        directory,
        issuer,
        isSignupOpen,
        ...pages,
        mailed: recovery && verification && { recovery, verification },
        // As for people: only those who may invite can assign an address that applications trust.
        adminVouchesForAgents: inviteToken === adminToken,
      }),
  };
}

export type ProvisioningModule = ReturnType<typeof createProvisioningModule>;

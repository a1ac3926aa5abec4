import type { FastifyRequest } from 'fastify';
import type { Pages } from '../../core/http/pages.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { Groups } from '../groups/service.js';
import { addressCollection, createAddresses } from './addresses.js';
import { agentUseCollection, createAgentUses } from './agent-uses.js';
import { createAgents } from './agents.js';
import { type ClientDependencies, createClients } from './clients.js';
import { createDirectory, type DirectoryDependencies } from './directory.js';
import { createFirstOperator, setupCollection } from './first-operator.js';
import { createLinks, type LinkDependencies } from './links.js';
import { createOperatorRoles } from './operators.js';
import { createPrincipals } from './principals.js';
import { createRecovery } from './recovery.js';
import { clientCollection, measurePrincipals, principalCollection } from './store.js';
import { createVerification, type SignedIn } from './verification.js';

export interface ProvisioningModuleOptions
  extends Pick<ClientDependencies, 'uriRules' | 'idTokenAlgorithms' | 'endClient' | 'reservedClaims'>,
    Pick<LinkDependencies, 'issuer' | 'mails' | 'endSessions' | 'trustForCodes' | 'forgetConsents'>,
    Pick<DirectoryDependencies, 'permissions'> {
  isSignupOpen: boolean;
  /** Without it, the administrator endpoints are disabled. */
  adminToken?: string | undefined;
  /** Without it, the administrator token can invite users. */
  inviteToken?: string | undefined;
  groups: Pick<Groups, 'has' | 'readFilter' | 'refuseUnknown' | 'joining' | 'leaving'>;
}

export type ProvisioningServices = ReturnType<typeof createProvisioningServices>;

export function createProvisioningServices(context: ModuleContext, options: ProvisioningModuleOptions) {
  const { store } = context;
  const { issuer, isSignupOpen, mails, adminToken, inviteToken = adminToken } = options;
  const collection = principalCollection(store);
  if (context.metrics) measurePrincipals(context.metrics, collection);
  const addresses = createAddresses(collection, addressCollection(store));
  const uses = createAgentUses(agentUseCollection(store), context);
  const agents = createAgents(collection, { ...context, ...options, addresses, uses });
  const shared = { ...context, ...options, addresses, agents, uses };
  const principals = createPrincipals(collection, shared);
  const { authenticate } = principals;
  const firstOperator = createFirstOperator(setupCollection(store), collection, shared);
  const clients = createClients(clientCollection(store), shared);
  return {
    issuer,
    clock: context.clock,
    agents,
    addresses,
    isSignupOpen,
    principals,
    links: createLinks(collection, { ...shared, clients, firstOperator }),
    clients,
    directory: createDirectory(collection, shared),
    operators: createOperatorRoles(collection, context),
    firstOperator,
    /** Absent without a mail server. */
    verification: mails && createVerification(collection, { ...shared, mails, authenticate }),
    /** Absent without a mail server. */
    recovery: mails && createRecovery(collection, { ...shared, mails }),
    /**
     * Whether the administrator token also vouches for the e-mail addresses of agents: as for people, only those who may invite
     * can assign an address that applications trust.
     */
    adminVouchesForAgents: inviteToken === adminToken,
  };
}

/** What the pages use besides. */
export interface PageServices {
  pages: Pages;
  /** Whether people have pages at `/account`. */
  hasAccountPages: boolean;
  /** Who is signed in in the browser of a request. */
  sessionOf(request: FastifyRequest): Promise<SignedIn | null>;
}

/** What the routes use. */
export type RouteServices = ProvisioningServices & PageServices;

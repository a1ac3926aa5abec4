import type { FastifyTypebox } from '../../core/http/routes.js';
import { MINUTE } from '../../core/kernel/clock.js';
import { createSealed } from '../../core/kernel/sealed.js';
import { createExpiryPurge } from '../../core/ops/purge.js';
import { createSingleUse } from '../../core/ops/single-use.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { type AgentAccessDependencies, createAgentAccess } from './access.js';
import { agentsPlugin } from './plugin.js';
import {
  type AgentAccountDependencies,
  type ConnectionTicket,
  createAgentAccounts,
  type PendingConnection,
} from './service.js';
import { usedAgentProofCollection } from './store.js';

/** Access of agents with the tokens of an identity provider. */
export type AgentsModule = ReturnType<typeof createAgentsModule>;

/** Also enough to sign in to the application again before the account is connected. */
const LIFETIME_MS = 10 * MINUTE;

export interface AgentsModuleOptions
  extends Pick<
      AgentAccountDependencies,
      | 'issuer'
      | 'resource'
      | 'links'
      | 'provider'
      | 'publicUrl'
      | 'origins'
      | 'singleUse'
      | 'announce'
      | 'announceEvent'
    >,
    Pick<AgentAccessDependencies, 'metadataUrl' | 'verify' | 'refusalOf' | 'findUser'> {
  /** The secrets that encrypt what the browser keeps, the current one first. */
  secrets: readonly string[];
  /** The address of the API. */
  apiUrl(): string;
}

export function createAgentsModule(context: ModuleContext, options: AgentsModuleOptions) {
  const { throttle } = context;
  const sealing = { ...context, keys: options.secrets, lifetimeMs: LIFETIME_MS };
  const callbackUrl = () => `${options.apiUrl()}/auth/agents/callback`;
  const accounts = createAgentAccounts({
    ...context,
    ...options,
    begun: createSealed<PendingConnection>('begun connections of agents', sealing),
    tickets: createSealed<ConnectionTicket>('single-use tickets of connections of agents', sealing),
    ticketLifetimeMs: LIFETIME_MS,
    callbackUrl,
  });
  context.accountData.add({ section: { name: 'agentAccounts', read: accounts.list } });
  return {
    accounts,
    access: createAgentAccess({ ...options, userOf: accounts.userOf, countRequest: throttle.countRequestOf }),
    plugin: (fastify: FastifyTypebox) =>
      agentsPlugin(fastify, { ...options, accounts, callbackUrl, lifetimeMs: LIFETIME_MS }),
  };
}

/** Remembers DPoP proofs and tickets in the store, so that one is used once in all processes together. */
export function createProofMemory({ store, clock, jobs }: Pick<ModuleContext, 'store' | 'clock' | 'jobs'>) {
  const used = usedAgentProofCollection(store);
  jobs.add('agent-proof-purge', createExpiryPurge(used, clock));
  return createSingleUse(used);
}

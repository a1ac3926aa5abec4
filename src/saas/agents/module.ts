import type { FastifyTypebox } from '../../core/http/routes.js';
import { createExpiryPurge } from '../../core/ops/purge.js';
import { createSingleUse } from '../../core/ops/single-use.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { agentsPlugin } from './plugin.js';
import { type AgentAccountOptions, createAgentAccounts } from './service.js';
import { usedAgentProofCollection } from './store.js';

/** The connections of users with their accounts at an identity provider. */
export function createAgentsModule(context: ModuleContext, options: AgentAccountOptions) {
  const accounts = createAgentAccounts(context, options);
  context.accountData.add({ section: { name: 'agentAccounts', read: accounts.list } });
  return {
    accounts,
    plugin: (fastify: FastifyTypebox) => agentsPlugin(fastify, { ...options, accounts }),
  };
}

/** Remembers DPoP proofs and tickets in the store, so that one is used once in all processes together. */
export function createProofMemory({ store, clock, jobs }: ModuleContext) {
  const used = usedAgentProofCollection(store);
  jobs.add('agent-proof-purge', createExpiryPurge(used, clock));
  return createSingleUse(used);
}

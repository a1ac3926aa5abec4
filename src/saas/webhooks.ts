import { type EventProof, provesChange } from '../core/ops/events.js';
import type { ModuleContext } from '../core/server/module-context.js';
import type { Store } from '../core/storage/collection.js';
import type { AgentLinks } from './agents/store.js';
import type { Users } from './auth/store.js';
import { sessionCollection } from './auth/store.js';
import { PAYMENT_EVENT, webhookEventCollection } from './billing/store.js';
import { usageCollection } from './billing/usage/reports.js';
import type { SaasConfiguration } from './options.js';
import type { WebhooksModule } from './webhooks/module.js';

export interface SaasWebhookOptions {
  values: SaasConfiguration;
  production: boolean;
  /** The names of all events. */
  names: readonly string[];
  users: Users;
  agentLinks: AgentLinks;
}

/** Whether the change of an announced event was made, by the document that it is about. */
export function createProofCheck(
  store: Store,
  { users, agentLinks }: { users: Users; agentLinks: AgentLinks },
): (proof: EventProof) => Promise<boolean> {
  const documents: Record<string, { findOne(where: { id: string }): Promise<object | null> }> = {
    user: users,
    session: sessionCollection(store),
    'agent-link': agentLinks,
    usage: usageCollection(store),
    [PAYMENT_EVENT]: webhookEventCollection(store),
  };
  return async (proof) => {
    const document = await documents[proof.of]?.findOne({ id: proof.id });
    return document !== undefined && provesChange(document, proof);
  };
}

/** Loads webhooks if they are enabled. */
export async function openWebhooks(
  context: ModuleContext,
  { values, production, names, users, agentLinks }: SaasWebhookOptions,
): Promise<WebhooksModule | undefined> {
  const { webhooks, settingsEncryptionKey: key, settingsEncryptionKeyPrevious: previous } = values;
  if (!webhooks || key === undefined) return undefined;
  const { createWebhooksModule } = await import('./webhooks/module.js');
  return createWebhooksModule(context, {
    names,
    reach: values.webhookPrivateNetworks ? 'private' : production ? 'public' : 'loopback',
    keys: previous === undefined ? [key] : [key, previous],
    wasMade: createProofCheck(context.store, { users, agentLinks }),
  });
}

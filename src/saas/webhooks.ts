import { type EventProof, provesChange } from '../core/ops/events.js';
import type { Store } from '../core/storage/collection.js';
import { sessionCollection, userCollection } from './auth/store.js';
import type { SaasBase } from './base.js';
import { EVENT_NAMES } from './events.js';
import type { WebhooksModule } from './webhooks/module.js';
import { contributeDeliveries } from './webhooks/personal-data.js';

/** Whether the change of an announced event was made, by the document that it is about. */
export function createProofCheck(store: Store): (proof: EventProof) => Promise<boolean> {
  const documents: Record<string, { findOne(where: { id: string }): Promise<object | null> }> = {
    user: userCollection(store),
    session: sessionCollection(store),
  };
  return async (proof) => {
    const document = await documents[proof.of]?.findOne({ id: proof.id });
    return document !== undefined && provesChange(document, proof);
  };
}

/** Loads webhooks if they are enabled. */
export async function openWebhooks({
  context,
  config,
  values,
}: SaasBase): Promise<WebhooksModule | undefined> {
  const { webhooks, settingsEncryptionKey: key, settingsEncryptionKeyPrevious: previous } = values;
  contributeDeliveries(context);
  if (!webhooks || key === undefined) return undefined;
  const { createWebhooksModule } = await import('./webhooks/module.js');
  return createWebhooksModule(context, {
    names: EVENT_NAMES,
    reach: values.webhookPrivateNetworks ? 'private' : config.production ? 'public' : 'loopback',
    keys: previous === undefined ? [key] : [key, previous],
    wasMade: createProofCheck(context.store),
  });
}

import type { SaasBase } from './base.js';
import { EVENT_NAMES } from './events.js';
import type { WebhooksModule } from './webhooks/module.js';
import { contributeDeliveries } from './webhooks/personal-data.js';

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
  });
}

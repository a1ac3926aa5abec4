import { toTimestamp } from '../../core/http/schemas.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { firstPagesOf, pagesOf } from '../../core/storage/pages.js';
import { deliveryCollection, endpointCollection, type WebhookDependencies } from './store.js';

/**
 * Deliveries lose what they contain about a user with the account, also if webhooks have been switched off since. Their collections
 * are declared at that time, so that a store without webhooks starts without them.
 */
export function contributeDeliveries({ store, accountData }: ModuleContext): void {
  accountData.add({
    delete: (userId) =>
      createDeliveryPersonalData({
        endpoints: endpointCollection(store),
        deliveries: deliveryCollection(store),
      }).forget(userId),
  });
}

const MAX_LISTED = 10_000;

/** What deliveries contain about a user. */
export function createDeliveryPersonalData({
  endpoints,
  deliveries,
}: Pick<WebhookDependencies, 'endpoints' | 'deliveries'>) {
  return {
    /** For the export. */
    async *listByUser(userId: string) {
      const hosts = new Map<string, string>();
      // Not the whole address, which can contain a secret.
      for await (const items of pagesOf(endpoints, { sort: 'createdAt' }))
        for (const { id, url } of items) hosts.set(id, new URL(url).host);
      const newestFirst = { where: { userId }, sort: 'createdAt', desc: true } as const;
      for await (const items of firstPagesOf(deliveries, newestFirst, MAX_LISTED))
        yield items.map(({ event, endpointId, status, createdAt, body }) => ({
          event,
          // The host that receives it; null if the endpoint has been removed since.
          recipient: hosts.get(endpointId) ?? null,
          status,
          createdAt: toTimestamp(createdAt),
          payload: JSON.parse(body),
        }));
    },

    /**
     * When the account is deleted: deliveries that have ended are removed, and pending ones lose the name, the address and the
     * metadata. It can be repeated.
     */
    async forget(userId: string) {
      for await (const items of pagesOf(deliveries, { where: { userId }, sort: 'createdAt' })) {
        for (const { id, body } of items) {
          const reduced = withoutUser(body);
          if (reduced !== body)
            await deliveries.updateOne({ id }, { set: { body: reduced }, unset: ['answer'] });
        }
      }
      // Last, so that it removes what has ended meanwhile.
      await deliveries.deleteMany({ userId, dueAt: null });
    },
  };
}

/** The body of a request without `user`; the rest consists of IDs, amounts and states. */
function withoutUser(body: string): string {
  const { data, ...message } = JSON.parse(body) as { data: Record<string, unknown> };
  const { user, ...rest } = data;
  return user === undefined ? body : JSON.stringify({ ...message, data: rest });
}

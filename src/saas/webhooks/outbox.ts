import type { Clock } from '../../core/kernel/clock.js';
import { sha256 } from '../../core/kernel/secrets.js';
import type { EventOutbox, StoredEvent } from '../../core/ops/events.js';
import { pagesOf } from '../../core/storage/pages.js';
import type { Deliveries, DeliveryDocument, EndpointDocument, Endpoints } from './store.js';

export interface WebhookOutboxDependencies {
  endpoints: Endpoints;
  deliveries: Deliveries;
  /** Called when there is something to send. */
  wake(): void;
  clock: Clock;
}

/** Without full stops, which separate the parts that are signed. Two kinds of events can have the same ID. */
const webhookIdOf = (name: string, id: string): string => `${id}:${name}`.replaceAll('.', '-');

const receives = ({ events, disabledAt }: EndpointDocument, name: string): boolean =>
  disabledAt === undefined && (events?.includes(name) ?? true);

/** The body of the requests: what listeners of `fastify.saas.events` get, in the form of Standard Webhooks. */
function bodyOf(name: string, { at, ...data }: StoredEvent): string {
  return JSON.stringify({ type: name, timestamp: at, data });
}

/** A delivery that is due now. */
export function newDelivery(
  name: string,
  event: StoredEvent,
  { endpointId, now }: { endpointId: string; now: number },
): DeliveryDocument {
  const webhookId = webhookIdOf(name, event.id);
  const { userId = event['organizationId'] } = event;
  return {
    id: `dlv_${sha256(`${webhookId} ${endpointId}`)}`,
    webhookId,
    event: name,
    endpointId,
    ...(typeof userId === 'string' && { userId }),
    body: bodyOf(name, event),
    status: 'pending',
    dueAt: now,
    attempts: 0,
    history: [],
    createdAt: now,
  };
}

/** Stores events for the endpoints that receive them. */
export function createWebhookOutbox(deps: WebhookOutboxDependencies): EventOutbox {
  const { endpoints, deliveries, wake, clock } = deps;
  return {
    async writesOf(name, event) {
      const now = clock.now();
      const receivers: EndpointDocument[] = [];
      for await (const items of pagesOf(endpoints, { sort: 'createdAt' }))
        receivers.push(...items.filter((endpoint) => receives(endpoint, name)));
      return receivers.map(({ id }) =>
        deliveries.ensuring(newDelivery(name, event, { endpointId: id, now })),
      );
    },
    wake,
  };
}

import { type Clock, MINUTE, SECOND } from '../../core/kernel/clock.js';
import { sha256 } from '../../core/kernel/secrets.js';
import type { EventProof, StoredEvent } from '../../core/ops/events.js';
import type { Job } from '../../core/ops/jobs.js';
import { nullIfTaken, type Write } from '../../core/storage/collection.js';
import { pagesOf } from '../../core/storage/pages.js';
import type { Deliveries, DeliveryDocument, EndpointDocument, Endpoints, Intents } from './store.js';

export interface WebhookOutboxDependencies {
  endpoints: Endpoints;
  deliveries: Deliveries;
  intents: Intents;
  /** Whether the change of an announced event was made. */
  wasMade(proof: EventProof): Promise<boolean>;
  /** Called when there is something to send. */
  wake(): void;
  clock: Clock;
}

/** How long a change that was announced may take. */
const CHANGE_MS = MINUTE;

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
  const { userId } = event;
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

/**
 * Records events for the endpoints that receive them. An event that follows a change is announced before the change, with what
 * proves that it was made; the job delivers what a crash has left, or drops it.
 */
export function createWebhookOutbox(deps: WebhookOutboxDependencies) {
  const { endpoints, deliveries, intents, wasMade, wake, clock } = deps;

  /** @param until those that were added later do not receive it */
  const receiversOf = async (name: string, until = Number.MAX_SAFE_INTEGER): Promise<EndpointDocument[]> => {
    const receivers: EndpointDocument[] = [];
    for await (const items of pagesOf(endpoints, { sort: 'createdAt' }))
      receivers.push(...items.filter((endpoint) => receives(endpoint, name) && endpoint.createdAt <= until));
    return receivers;
  };

  const deliver = async (name: string, event: StoredEvent, until?: number): Promise<void> => {
    const receivers = await receiversOf(name, until);
    const now = clock.now();
    const recorded = receivers.map(({ id }) => newDelivery(name, event, { endpointId: id, now }));
    await Promise.all(recorded.map((delivery) => deliveries.insert(delivery).catch(nullIfTaken)));
    if (receivers.length > 0) wake();
  };

  return {
    put: (name: string, event: StoredEvent) => deliver(name, event),

    async writesOf(name: string, event: StoredEvent): Promise<readonly Write[]> {
      const now = clock.now();
      const receivers = await receiversOf(name);
      return receivers.map(({ id }) =>
        deliveries.ensuring(newDelivery(name, event, { endpointId: id, now })),
      );
    },

    wake,

    async announce(name: string, event: StoredEvent, proof: EventProof): Promise<boolean> {
      if ((await receiversOf(name)).length === 0) return false;
      const [text, how] = [JSON.stringify(event), JSON.stringify(proof)];
      // Also announced by another request that makes the same change.
      await intents
        .insert({ id: `${event.id}:${name}`, name, event: text, proof: how, createdAt: clock.now() })
        .catch(nullIfTaken);
      return true;
    },

    async withdraw(name: string, id: string) {
      await intents.deleteOne({ id: `${id}:${name}` });
    },

    /** Settles the events that were announced by a process that has ended. */
    settle: {
      everySeconds: MINUTE / SECOND,
      async run({ signal }) {
        const where = { createdAt: { lte: clock.now() - CHANGE_MS } };
        for await (const items of pagesOf(intents, { where, sort: 'createdAt' })) {
          for (const { id, name, event, proof, createdAt } of items) {
            if (signal.aborted) return;
            if (await wasMade(JSON.parse(proof))) await deliver(name, JSON.parse(event), createdAt);
            await intents.deleteOne({ id });
          }
        }
      },
    } satisfies Job,
  };
}

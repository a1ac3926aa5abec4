import type { TObject } from 'typebox';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { registerAction } from '../../shared/console-kit/actions.js';
import type { Console } from '../../shared/console-kit/console.js';
import { registerDetail } from '../../shared/console-kit/details.js';
import { registerList } from '../../shared/console-kit/lists.js';
import { tableOf } from '../../shared/console-kit/tables.js';
import type { DeliveryService } from './deliveries.js';
import { DELIVERY_STATUSES, DeliveryDetail, type DeliveryStatus, DeliveryView } from './schemas.js';
import { type EndpointService, TEST_EVENT } from './service.js';

const PATH = 'deliveries';
const SECTION = 'endpoints';

const LABELS: Record<DeliveryStatus, string> = {
  pending: 'Pending',
  delivered: 'Delivered',
  failed: 'Failed',
};

/** The deliveries of all endpoints. */
export async function deliveryPagesPlugin(
  fastify: FastifyTypebox,
  {
    console,
    endpoints,
    deliveries,
  }: { console: Console; endpoints: EndpointService; deliveries: DeliveryService },
): Promise<void> {
  const names = [...endpoints.names, TEST_EVENT];

  registerList<DeliveryView>(fastify, console, {
    path: PATH,
    section: SECTION,
    title: 'Deliveries',
    intro: 'Events for endpoints, of the last 30 days.',
    links: [{ path: SECTION, label: 'Endpoints' }],
    filters: [
      {
        name: 'status',
        label: 'Status',
        options: DELIVERY_STATUSES.map((value) => ({ value, label: LABELS[value] })),
      },
      { name: 'event', label: 'Event', options: names.map((value) => ({ value, label: value })) },
      { name: 'endpoint', label: 'Endpoint', hint: 'Its ID.', type: 'text' },
    ],
    columns: [
      { label: 'Event', text: ({ event }) => event, href: ({ id }) => `${PATH}/${id}` },
      { label: 'Status', text: ({ status }) => status, kind: 'status' },
      { label: 'Attempts', text: ({ attempts }) => attempts, kind: 'number' },
      { label: 'Last result', text: ({ lastResult }) => lastResult },
      { label: 'Created', text: ({ createdAt }) => createdAt, kind: 'time' },
      { label: 'Next attempt', text: ({ nextAttemptAt }) => nextAttemptAt, kind: 'time' },
      {
        label: 'Endpoint',
        text: ({ endpointId }) => endpointId,
        href: ({ endpointId }) => `${SECTION}/${endpointId}`,
        kind: 'code',
      },
    ],
    item: DeliveryView,
    read: ({ filters, after, limit }) =>
      deliveries.list({
        status: filters['status'] as DeliveryStatus | undefined,
        event: filters['event'],
        endpointId: filters['endpoint'],
        after,
        limit,
      }),
    empty: 'No event was sent yet.',
  });

  registerDetail<DeliveryDetail>(fastify, console, {
    path: `${PATH}/:id`,
    section: SECTION,
    item: DeliveryDetail,
    find: ({ id = '' }) => deliveries.find(id),
    view({ id, status, answer, endpointId, ...delivery }, root) {
      const attempts = tableOf(
        [
          { label: 'Time', text: ({ at }) => at, kind: 'time' },
          { label: 'Result', text: ({ result }) => result },
        ],
        delivery.history.toReversed(),
        root,
      );
      const payload = JSON.stringify(JSON.parse(delivery.payload), null, 2);
      return {
        title: delivery.event,
        facts: [
          { label: 'Status', state: status },
          { label: 'Attempts', text: String(delivery.attempts) },
          { label: 'Last result', text: delivery.lastResult },
          { label: 'Created', time: delivery.createdAt },
          { label: 'Next attempt', time: delivery.nextAttemptAt },
          { label: 'Completed', time: delivery.endedAt },
          { label: 'Message ID (webhook-id)', text: delivery.webhookId, isCode: true },
          { label: 'Endpoint', text: endpointId, isCode: true },
        ],
        actions: [
          ...(status === 'pending' ? [] : [{ href: `${id}/resend`, label: 'Send again' }]),
          { href: `../${SECTION}/${endpointId}`, label: 'Show the endpoint' },
        ],
        texts: [
          { id: 'payload', heading: 'Payload', text: payload },
          ...(answer === null
            ? []
            : [{ id: 'answer', heading: 'Beginning of the last answer', text: answer }]),
        ],
        tables: [{ heading: 'Attempts', ...attempts, empty: 'There was no attempt yet.' }],
      };
    },
  });

  await registerAction<DeliveryDetail, TObject, unknown>(fastify, console, {
    path: `${PATH}/:id/resend`,
    role: 'support',
    section: SECTION,
    title: ({ event }) => `Send ${event} again?`,
    consequences: 'The endpoint receives the same payload with the same webhook-id.',
    button: 'Send again',
    find: ({ id = '' }) => deliveries.find(id),
    run: ({ id }, _, by) => deliveries.resend(id, by),
    done: 'The event is being sent again.',
    returnTo: ({ id }) => `${PATH}/${id}`,
  });
}

import { type TObject, Type } from 'typebox';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { actionsOn, type Input, registerAction } from '../../shared/console-kit/actions.js';
import type { Console } from '../../shared/console-kit/console.js';
import { registerDetail } from '../../shared/console-kit/details.js';
import { registerList } from '../../shared/console-kit/lists.js';
import { sentenceCase } from '../../shared/console-kit/marks.js';
import type { DeliveryService } from './deliveries.js';
import { deliveryPagesPlugin } from './delivery-pages.js';
import { EndpointView } from './schemas.js';
import type { EndpointInput, EndpointService } from './service.js';

export interface WebhookPagesOptions {
  console: Console;
  endpoints: EndpointService;
  deliveries: DeliveryService;
}

/** The path of the list, and the entry of the navigation. */
const SECTION = 'endpoints';

const Fields = Type.Object({
  url: Type.String({
    accepts: 'an https address of at most 2048 characters',
    maxLength: 2048,
    pattern: '^[^\\p{C}\\s]+$',
  }),
  description: Type.Optional(
    Type.String({
      accepts: 'a text of at most 200 characters',
      maxLength: 200,
      pattern: '^[^\\p{Cc}\\p{Cs}]*$',
    }),
  ),
  events: Type.Optional(
    Type.String({
      accepts: 'the names of events, separated by spaces or lines',
      maxLength: 2000,
      pattern: '^[\\w.\\s]*$',
    }),
  ),
});

/** The heading above events: what they are about. */
const groupOf = (name: string): string => sentenceCase(name.slice(0, name.indexOf('.')));

const inputs = (names: readonly string[]): readonly Input[] => [
  {
    name: 'url',
    label: 'URL',
    hint: 'Where events are sent with POST, like https://example.com/hooks.',
    isRequired: true,
    maxLength: 2048,
  },
  { name: 'description', label: 'Description', hint: 'For you. Optional.', maxLength: 200 },
  {
    name: 'events',
    label: 'Events',
    hint: 'Without a choice, all of them are sent, also those of later versions.',
    type: 'checks',
    options: names.map((name) => ({ value: name, label: name, group: groupOf(name) })),
  },
];

const inputOf = ({
  url = '',
  description = '',
  events = '',
}: Partial<Record<string, string>>): EndpointInput => ({
  url,
  description,
  events: events.split(/\s+/).filter((name) => name !== ''),
});

const Secret = Type.Object({
  endpointId: Type.String(),
  secret: Type.String({ description: 'Shown only once. It verifies the signatures.' }),
});

const shown = (endpoint: Pick<EndpointView, 'id' | 'url'>, secret: string) => ({
  title: endpoint.url,
  note: 'The secret is shown only once. Copy it into the configuration of the receiver now: it verifies the signatures with it.',
  secrets: [{ label: 'Signing secret', value: secret }],
});

const pageOf = ({ id }: EndpointView) => `${SECTION}/${id}`;

/** The endpoints of webhooks, their changes, and the deliveries. */
export async function webhookPagesPlugin(
  fastify: FastifyTypebox,
  options: WebhookPagesOptions,
): Promise<void> {
  const { console, endpoints } = options;

  registerList<EndpointView>(fastify, console, {
    path: SECTION,
    title: 'Webhooks',
    intro: 'Endpoints of yours that receive events as signed requests: docs/saas/webhooks.md.',
    links: [
      { path: `${SECTION}/create`, label: 'Add an endpoint' },
      { path: 'deliveries', label: 'All deliveries' },
    ],
    columns: [
      { label: 'URL', text: ({ url }) => url, href: pageOf },
      { label: 'State', text: ({ state }) => state, kind: 'status' },
      { label: 'Events', text: ({ events }) => events.join(' ') || 'all' },
      { label: 'Failing since', text: ({ failingSince }) => failingSince, kind: 'time' },
      { label: 'Last success', text: ({ lastSuccessAt }) => lastSuccessAt, kind: 'time' },
      { label: 'Created', text: ({ createdAt }) => createdAt, kind: 'time' },
      { label: 'Description', text: ({ description }) => description },
    ],
    item: EndpointView,
    read: ({ after, limit }) => endpoints.list({ after, limit }),
    empty: 'There are no endpoints yet. Add one to receive events.',
  });

  registerDetail<EndpointView>(fastify, console, {
    path: `${SECTION}/:id`,
    section: SECTION,
    item: EndpointView,
    find: ({ id = '' }) => endpoints.find(id),
    view: ({ id, url, state, events, ...endpoint }) => ({
      title: url,
      facts: [
        { label: 'State', state },
        { label: 'Disabled because', text: endpoint.disabledReason },
        { label: 'URL', text: url },
        { label: 'Events', text: events.join(', ') || 'all' },
        { label: 'Description', text: endpoint.description || null },
        { label: 'Last success', time: endpoint.lastSuccessAt },
        { label: 'Failing since', time: endpoint.failingSince },
        { label: 'Last failure', text: endpoint.lastFailure },
        { label: 'Previous secret signs until', time: endpoint.previousSecretUntil },
        { label: 'Created', time: endpoint.createdAt },
        { label: 'ID', text: id, isCode: true },
      ],
      actions: [
        { href: `../deliveries?endpoint=${id}`, label: 'Deliveries' },
        ...(state === 'disabled'
          ? [{ href: `${id}/enable`, label: 'Enable' }]
          : [
              { href: `${id}/test`, label: 'Send a test event' },
              { href: `${id}/resend`, label: 'Send failed events again' },
              { href: `${id}/disable`, label: 'Disable' },
            ]),
        { href: `${id}/update`, label: 'Change' },
        { href: `${id}/rotate`, label: 'Rotate the secret' },
        { href: `${id}/remove`, label: 'Remove' },
      ],
    }),
  });

  await registerChanges(fastify, options);
  await deliveryPagesPlugin(fastify, options);
}

async function registerChanges(
  fastify: FastifyTypebox,
  { console, endpoints, deliveries }: WebhookPagesOptions,
): Promise<void> {
  const register = actionsOn<EndpointView>(fastify, console, {
    path: `${SECTION}/:id`,
    section: SECTION,
    find: ({ id = '' }) => endpoints.find(id),
    returnTo: pageOf,
  });

  await registerAction<object, typeof Fields, { endpoint: EndpointView; secret: string }>(fastify, console, {
    path: `${SECTION}/create`,
    section: SECTION,
    title: () => 'Add an endpoint',
    consequences:
      'Events from now on are sent to it. It gets a secret for the signatures, which is shown once.',
    button: 'Add the endpoint',
    fields: Fields,
    inputs: inputs(endpoints.names),
    find: async () => ({}),
    run: (_, fields, by) => endpoints.create(inputOf(fields), by),
    reveal: ({ endpoint, secret }) => shown(endpoint, secret),
    answer: { schema: Secret, of: ({ endpoint, secret }) => ({ endpointId: endpoint.id, secret }) },
    done: 'Endpoint added.',
    returnTo: () => SECTION,
  });

  await register<typeof Fields, unknown>('update', {
    title: ({ url }) => `Change ${url}`,
    consequences: 'Deliveries that are pending go to the new address as well.',
    button: 'Save',
    fields: Fields,
    inputs: inputs(endpoints.names),
    values: ({ url, description, events }) => ({ url, description, events: events.join('\n') }),
    run: ({ id }, fields, by) => endpoints.update(id, inputOf(fields), by),
    done: 'Saved.',
  });

  const Rotation = Type.Object({
    atOnce: Type.Optional(Type.String({ accepts: 'yes or no', pattern: '^(yes|no)$', maxLength: 3 })),
  });
  await register<typeof Rotation, string>('rotate', {
    title: ({ url }) => `Rotate the secret of ${url}?`,
    consequences: 'The endpoint gets a new secret, which is shown once.',
    button: 'Rotate the secret',
    fields: Rotation,
    inputs: [
      {
        name: 'atOnce',
        label: 'The old secret',
        options: [
          { value: 'no', label: 'signs beside the new one for 24 hours' },
          { value: 'yes', label: 'ends at once' },
        ],
      },
    ],
    run: ({ id }, { atOnce }, by) => endpoints.rotate(id, { atOnce: atOnce === 'yes' }, by),
    reveal: (secret, endpoint) => shown(endpoint, secret),
    answer: { schema: Secret, of: (secret, { id }) => ({ endpointId: id, secret }) },
    done: 'Secret rotated.',
  });

  await register<TObject, unknown>('disable', {
    title: ({ url }) => `Disable ${url}?`,
    consequences:
      'It receives no further events. What is pending fails, and can be sent again after the endpoint is enabled.',
    button: 'Disable',
    run: ({ id }, _, by) => endpoints.disable(id, by),
    done: 'Disabled.',
  });

  await register<TObject, unknown>('enable', {
    title: ({ url }) => `Enable ${url}?`,
    consequences: 'It receives events from now on, and none of those that happened while it was disabled.',
    button: 'Enable',
    run: ({ id }, _, by) => endpoints.enable(id, by),
    done: 'Enabled.',
  });

  await register<TObject, unknown>('remove', {
    title: ({ url }) => `Remove ${url}?`,
    consequences: 'This cannot be undone. Its deliveries are removed as well.',
    button: 'Remove permanently',
    isDestructive: true,
    run: ({ id }, _, by) => endpoints.remove(id, by),
    done: 'Removed.',
    returnTo: () => SECTION,
  });

  const Test = Type.Object({ deliveryId: Type.String() });
  await register<TObject, string>('test', {
    title: ({ url }) => `Send a test event to ${url}?`,
    consequences: 'The event webhook.test is sent, whichever events the endpoint receives.',
    button: 'Send',
    run: ({ id }, _, by) => endpoints.sendTest(id, by),
    answer: { schema: Test, of: (deliveryId) => ({ deliveryId }) },
    done: 'The test event is being sent. It is the newest in the list.',
    returnTo: () => 'deliveries',
  });

  const Count = Type.Object({ count: Type.Integer() });
  await register<TObject, number>('resend', {
    title: ({ url }) => `Send failed events to ${url} again?`,
    consequences:
      'The failed deliveries of the last 30 days, at most the oldest 1,000, are attempted again with the same IDs and payloads. Repeat it for the rest.',
    button: 'Send again',
    run: ({ id }, _, by) => deliveries.resendFailed(id, by),
    answer: { schema: Count, of: (count) => ({ count }) },
    done: 'The failed events are being sent again.',
  });
}

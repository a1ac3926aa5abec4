import { Type } from 'typebox';
import { isOrganizationId } from '../../core/http/identity.js';
import { access, type FastifyTypebox } from '../../core/http/routes.js';
import { Envelope, ok } from '../../core/http/schemas.js';
import { AppError, invalidFields } from '../../core/kernel/errors.js';
import { registerAction } from '../../shared/console-kit/actions.js';
import { Parameters } from '../../shared/console-kit/console.js';
import { registerDetail } from '../../shared/console-kit/details.js';
import { type ListQuery, registerList } from '../../shared/console-kit/lists.js';
import type { EventLog, EventQuery, EventRecord } from '../billing/events/log.js';
import type { AdminServices } from './services.js';

type Outcome = NonNullable<EventQuery['outcome']>;

const OUTCOMES: readonly { value: Outcome; label: string; meaning: string }[] = [
  { value: 'processed', label: 'Processed', meaning: 'It changed or recorded something.' },
  { value: 'stale', label: 'Stale', meaning: 'A newer state was stored already, so it changed nothing.' },
  { value: 'ignored', label: 'Ignored', meaning: 'Its type has no effect here.' },
  { value: 'unmatched', label: 'Unmatched', meaning: 'Its user is not known. Assign it to a user.' },
  {
    value: 'pending',
    label: 'Pending',
    meaning: 'It is being processed, or its processing failed and the next delivery repeats it.',
  },
];

/** The log of the payment provider's events. */
export async function webhooksPlugin(
  fastify: FastifyTypebox,
  { console, billing, resolveUser }: AdminServices,
): Promise<void> {
  const events = billing.eventLog;
  registerList<EventRecord>(fastify, console, {
    path: 'webhooks',
    title: 'Payment events',
    intro: 'Without a filter, the list contains the processed events.',
    search: {
      label: 'Search',
      hint: 'The ID of an event (evt_…), or of the customer, subscription or payment that it is about.',
      maxLength: 254,
    },
    filters: [{ name: 'outcome', label: 'Outcome', options: OUTCOMES }],
    columns: [
      { label: 'Type', text: ({ type }) => type, href: ({ id }) => `webhooks/${id}` },
      { label: 'Outcome', text: ({ outcome }) => outcome, kind: 'status' },
      { label: 'Received', text: ({ receivedAt }) => receivedAt, kind: 'time' },
      { label: 'Attempts', text: ({ attempts }) => attempts, kind: 'number' },
      { label: 'About', text: ({ about }) => about, kind: 'code' },
      { label: 'ID', text: ({ id }) => id, kind: 'code' },
    ],
    item: events.schema,
    read: (query) => events.list(toEventQuery(query)),
    isNamed: ({ id }, text) => id === text,
    empty:
      'There are no such events. The payment provider sends them to POST /api/billing/webhook; docs/saas/billing.md describes the setup.',
  });

  registerDetail(fastify, console, {
    path: 'webhooks/:id',
    section: 'webhooks',
    async find({ id = '' }) {
      const [event, payload] = await Promise.all([events.find(id), readBody(events, id)]);
      return { ...event, ...payload };
    },
    view: ({ id, type, outcome, about, dashboardUrl, body, problem, ...event }) => ({
      title: type,
      facts: [
        { label: 'Outcome', state: outcome, text: meaningOf(outcome) ?? '' },
        { label: 'Received', time: event.receivedAt },
        { label: 'Attempts', text: String(event.attempts) },
        { label: 'Object', text: event.objectId, isCode: true },
        { label: 'About', text: about, href: `../webhooks?q=${about}`, isCode: true },
        { label: 'ID', text: id, isCode: true },
        { label: 'Body', text: problem },
      ],
      actions: [
        { href: `${id}/replay`, label: 'Replay' },
        ...(outcome === 'unmatched' ? [{ href: `${id}/assign`, label: 'Assign to a user' }] : []),
        ...(dashboardUrl ? [{ href: dashboardUrl, label: 'Open at the payment provider' }] : []),
      ],
      texts: body === null ? [] : [{ id: 'body', heading: 'Body', text: body }],
    }),
  });

  const Answer = Envelope(
    Type.Object({ event: events.schema, payload: Type.Union([Type.String(), Type.Null()]) }),
  );
  fastify.get(
    '/api/webhooks/:id',
    { config: access(console.access), schema: { params: Parameters, response: { 200: Answer } } },
    async ({ params: { id = '' } }) => {
      const [event, payload] = await Promise.all([events.find(id), events.payload(id)]);
      return ok({ event: event as never, payload });
    },
  );

  await registerAction(fastify, console, {
    path: 'webhooks/:id/replay',
    section: 'webhooks',
    title: ({ type }) => `Replay ${type}`,
    consequences:
      'The event is processed again. What is up to date already stays as it is, and nobody is notified a second time.',
    button: 'Replay',
    role: 'support',
    find: ({ id = '' }) => events.find(id),
    run: ({ id }, _fields, by) => events.replay(id, by),
    done: 'The event was processed again. Its outcome is below.',
    returnTo: ({ id }) => `webhooks/${id}`,
  });

  await registerAction(fastify, console, {
    path: 'webhooks/:id/assign',
    section: 'webhooks',
    title: ({ type }) => `Assign ${type} to a user or an organization`,
    consequences:
      'The event is processed for this user or organization, and so are further events of its customer. A customer cannot be assigned to another one later.',
    button: 'Assign',
    fields: Type.Object({
      user: Type.String({
        accepts: 'the ID or the e-mail address of a user, or the ID of an organization',
        maxLength: 254,
        pattern: '^[^\\p{C}\\s]+$',
      }),
    }),
    inputs: [
      {
        name: 'user',
        label: 'User or organization',
        hint: 'The ID or the e-mail address of a user, or the ID of an organization.',
        isRequired: true,
        maxLength: 254,
      },
    ],
    find: ({ id = '' }) => events.find(id),
    async run({ id }, { user = '' }, by) {
      const ownerId = isOrganizationId(user) ? user : await resolveUser(user);
      if (ownerId === undefined) {
        throw invalidFields({ path: 'user', message: 'must be the ID or the e-mail address of a user' });
      }
      return events.assign(id, ownerId, by);
    },
    done: 'The event was assigned. Its outcome is below.',
    returnTo: ({ id }) => `webhooks/${id}`,
  });
}

function toEventQuery({ search, filters: { outcome }, after, limit }: ListQuery): EventQuery {
  const rest = { outcome: outcome as Outcome | undefined, after, limit };
  if (search === undefined) return rest;
  return /^(sub|cus|pi|ch)_/.test(search) ? { ...rest, about: search } : { id: search, after, limit };
}

const meaningOf = (outcome: string) => OUTCOMES.find(({ value }) => value === outcome)?.meaning;

/** The body for the page, which is useful without it, too: then it says why. */
async function readBody(
  { payload }: EventLog,
  id: string,
): Promise<{ body: string | null; problem: string | null }> {
  try {
    const body = await payload(id);
    if (body !== null) return { body: JSON.stringify(JSON.parse(body), null, 2), problem: null };
    return { body, problem: GONE };
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    const problem = `The payment provider does not return the body now: ${error.message}`;
    return { body: null, problem };
  }
}

const GONE =
  'The body is no longer available: completed events are stored without it, and the payment provider keeps events for 30 days.';

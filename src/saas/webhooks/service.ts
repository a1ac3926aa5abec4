import { isIP } from 'node:net';
import { toTimestamp, toTimestampOrNull } from '../../core/http/schemas.js';
import { isLoopbackAddress, isPublicAddress, plainAddress } from '../../core/kernel/addresses.js';
import { httpErrors, invalidFields } from '../../core/kernel/errors.js';
import { newId } from '../../core/kernel/secrets.js';
import { auditActor, changeDetail, type Operator } from '../../core/ops/audit.js';
import type { Reach } from '../../core/outbound/request.js';
import type { Page } from '../../core/storage/collection.js';
import { readPage } from '../../core/storage/pages.js';
import { webhookErrors } from './errors.js';
import { failPending, refusal, resuming } from './health.js';
import { newDelivery } from './outbox.js';
import type { EndpointState, EndpointView } from './schemas.js';
import { newSecret, PREVIOUS_SECRET_MS } from './signing.js';
import { ENDPOINT_PREFIX, type EndpointDocument, type WebhookDependencies } from './store.js';

/** What the operator writes. */
export interface EndpointInput {
  url: string;
  description: string;
  /** Empty: all. */
  events: string[];
}

/** The endpoints, which the operator manages. */
export type EndpointService = ReturnType<typeof createEndpointService>;

export interface EndpointServiceDependencies extends WebhookDependencies {
  names: readonly string[];
  reach: Reach;
}

const MAX_ENDPOINTS = 50;
const MAX_URL_LENGTH = 2048;

/** The event by which the operator tests an endpoint. */
export const TEST_EVENT = 'webhook.test';

/** Describes why an address cannot be an endpoint; undefined if it can. Names are checked when the connection is opened. */
export function urlProblem(text: string, reach: Reach): string | undefined {
  const url = URL.canParse(text) && text.length <= MAX_URL_LENGTH ? new URL(text) : null;
  if (!url || url.hostname === '' || !/^https?:$/.test(url.protocol))
    return 'must be an https address of at most 2048 characters';
  if (url.username !== '' || url.password !== '' || url.hash !== '')
    return 'must have neither a user nor a password nor a fragment';
  const host = plainAddress(url.hostname.replace(/^\[|\]$/g, ''));
  const isAddress = isIP(host) !== 0;
  const isLocal = isAddress ? isLoopbackAddress(host) : url.hostname === 'localhost';
  const isNear = reach === 'private' || (reach === 'loopback' && isLocal);
  if (url.protocol === 'http:' && !isNear) return 'must begin with https://';
  return isAddress && !isNear && !isPublicAddress(host) ? 'must have a public address' : undefined;
}

const stateOf = ({ disabledAt, failingSince }: EndpointDocument): EndpointState =>
  disabledAt !== undefined ? 'disabled' : failingSince !== undefined ? 'failing' : 'enabled';

export function createEndpointService(deps: EndpointServiceDependencies) {
  const { endpoints, deliveries, commit, names, reach, encryption, wake, audit, clock, random } = deps;

  const read = async (id: string): Promise<EndpointDocument> => {
    const endpoint = await endpoints.findOne({ id });
    if (!endpoint) throw httpErrors.NOT_FOUND();
    return endpoint;
  };

  const view = (endpoint: EndpointDocument): EndpointView => {
    const { previousSecretUntil: until } = endpoint;
    return {
      id: endpoint.id,
      url: endpoint.url,
      description: endpoint.description,
      events: endpoint.events ?? [],
      state: stateOf(endpoint),
      disabledReason: endpoint.disabledReason ?? null,
      failingSince: toTimestampOrNull(endpoint.failingSince),
      lastFailure: endpoint.lastFailure ?? null,
      lastSuccessAt: toTimestampOrNull(endpoint.lastSuccessAt),
      previousSecretUntil: toTimestampOrNull(until !== undefined && until > clock.now() ? until : undefined),
      createdAt: toTimestamp(endpoint.createdAt),
    };
  };

  /** @throws VALIDATION_ERROR */
  const validate = ({ url, events }: EndpointInput): void => {
    const problem = urlProblem(url, reach);
    if (problem !== undefined) throw invalidFields({ path: 'url', message: problem });
    const unknown = events.find((name) => !names.includes(name));
    if (unknown !== undefined) {
      const message = `must list known events; '${unknown}' is none. The events are: ${names.join(', ')}`;
      throw invalidFields({ path: 'events', message });
    }
  };

  const entry = (event: string, id: string, by: Operator, detail?: string) =>
    audit.entry({
      event: `webhook.${event}`,
      ...auditActor(by),
      detail: detail === undefined ? id : `${id} ${detail}`,
    });

  const shown = ({
    url,
    description,
    events = [],
  }: {
    url: string;
    description: string;
    events?: string[];
  }) => ({
    url,
    description,
    events: events.join(' '),
  });

  return {
    /** The names of all events. */
    names,

    /** The newest first. @throws VALIDATION_ERROR for an invalid `after` */
    async list({ after, limit }: { after: string | undefined; limit: number }): Promise<Page<EndpointView>> {
      const { items, next } = await readPage(endpoints, { sort: 'createdAt', desc: true, after, limit });
      return { items: items.map(view), next };
    },

    /** @throws NOT_FOUND */
    find: async (id: string): Promise<EndpointView> => view(await read(id)),

    /** Returns the secret, which is not shown again. @throws VALIDATION_ERROR, TOO_MANY_ENDPOINTS */
    async create(input: EndpointInput, by: Operator): Promise<{ endpoint: EndpointView; secret: string }> {
      validate(input);
      if ((await endpoints.count({}, MAX_ENDPOINTS)) >= MAX_ENDPOINTS)
        throw webhookErrors.TOO_MANY_ENDPOINTS();
      const secret = newSecret(random);
      const id = newId(ENDPOINT_PREFIX, clock, random);
      const endpoint: EndpointDocument = {
        id,
        url: input.url,
        description: input.description,
        ...(input.events.length > 0 && { events: [...new Set(input.events)] }),
        secret: encryption.encrypt(id, secret),
        createdAt: clock.now(),
        version: 1,
      };
      await commit([
        endpoints.inserting(endpoint),
        entry('endpoint-created', id, by, JSON.stringify(shown(input))),
      ]);
      return { endpoint: view(endpoint), secret };
    },

    /** @throws NOT_FOUND, VALIDATION_ERROR */
    async update(id: string, input: EndpointInput, by: Operator) {
      validate(input);
      const before = await read(id);
      const { url, events } = input;
      const change = {
        set: {
          url,
          description: input.description,
          ...(events.length > 0 && { events: [...new Set(events)] }),
        },
        inc: { version: 1 },
        unset: [
          ...(events.length > 0 ? [] : (['events'] as const)),
          // What is known about the old address says nothing about another one.
          ...(url === before.url
            ? []
            : (['failingSince', 'lastFailure', 'unanswered', 'pausedUntil'] as const)),
        ],
      };
      const { committed } = await commit([
        endpoints.changing({ id, version: before.version }, change),
        entry('endpoint-changed', id, by, changeDetail(shown(before), shown(input))),
      ]);
      if (!committed) throw httpErrors.VERSION_CONFLICT();
      wake();
    },

    /** A new secret; the old one signs as well for a day, unless `atOnce`. @throws NOT_FOUND, VERSION_CONFLICT */
    async rotate(id: string, { atOnce }: { atOnce: boolean }, by: Operator): Promise<string> {
      const { version, secret: old } = await read(id);
      const secret = newSecret(random);
      const set = { secret: encryption.encrypt(id, secret) };
      const previous = { previousSecret: old, previousSecretUntil: clock.now() + PREVIOUS_SECRET_MS };
      const { committed } = await commit([
        endpoints.changing(
          { id, version },
          atOnce
            ? { set, unset: ['previousSecret', 'previousSecretUntil'], inc: { version: 1 } }
            : { set: { ...set, ...previous }, inc: { version: 1 } },
        ),
        entry('secret-rotated', id, by, atOnce ? 'at once' : undefined),
      ]);
      if (!committed) throw httpErrors.VERSION_CONFLICT();
      return secret;
    },

    /** Ends what is pending. @throws NOT_FOUND */
    async disable(id: string, by: Operator) {
      const now = clock.now();
      const { committed } = await commit([
        endpoints.changing({ id, disabledAt: null }, { set: { disabledAt: now }, inc: { version: 1 } }),
        entry('endpoint-disabled', id, by),
      ]);
      if (!committed) await read(id);
      // The job continues, if there are more.
      await failPending(deliveries, { endpointId: id, now, batches: 5 });
    },

    /** @throws NOT_FOUND */
    async enable(id: string, by: Operator) {
      const { committed } = await commit([
        endpoints.changing(
          { id, disabledAt: { gt: 0 } },
          {
            unset: [
              ...(['disabledAt', 'disabledReason', 'failingSince', 'lastFailure'] as const),
              ...(['unanswered', 'pausedUntil'] as const),
            ],
            inc: { version: 1 },
          },
        ),
        entry('endpoint-enabled', id, by),
      ]);
      if (!committed) await read(id);
    },

    /** With all its deliveries. @throws NOT_FOUND */
    async remove(id: string, by: Operator) {
      const { committed } = await commit([endpoints.deleting({ id }), entry('endpoint-removed', id, by)]);
      if (!committed) throw httpErrors.NOT_FOUND();
      // The job removes what a crash leaves, and those of events that are recorded meanwhile.
      await deliveries.deleteMany({ endpointId: id });
    },

    /** Sends the event `webhook.test`; returns the ID of the delivery. @throws NOT_FOUND, ENDPOINT_DISABLED */
    async sendTest(id: string, by: Operator): Promise<string> {
      const now = clock.now();
      const event = { id: newId('evt_', clock, random), at: toTimestamp(now), endpointId: id };
      const delivery = newDelivery(TEST_EVENT, event, { endpointId: id, now });
      const { committed } = await commit([
        resuming(endpoints, id),
        deliveries.inserting(delivery),
        entry('tested', id, by),
      ]);
      if (!committed) throw await refusal(endpoints, id);
      wake();
      return delivery.id;
    },

    /** How many fail, or were disabled for that. */
    async countProblems(): Promise<{ disabled: number; failing: number }> {
      const { items } = await endpoints.page({ sort: 'createdAt', limit: 2 * MAX_ENDPOINTS });
      const failed = items.filter((one) => stateOf(one) === 'disabled' && one.disabledReason !== undefined);
      return {
        disabled: failed.length,
        failing: items.filter((one) => stateOf(one) === 'failing').length,
      };
    },
  };
}

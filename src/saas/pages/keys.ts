import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Localized, longTime, message } from '../../core/http/messages.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { DisplayName, matchesSchema } from '../../core/http/schemas.js';
import { DAY } from '../../core/kernel/clock.js';
import { AppError } from '../../core/kernel/errors.js';
import type { CreatedKey, KeyView } from '../keys/schemas.js';
import type { PagesWith } from './context.js';
import { KeyBody, NewKeyBody, NoticeQuery } from './schemas.js';

/** What was typed into the form of a new key, and what is wrong with it. */
interface Failure {
  name: string;
  scopes: readonly string[];
  days: number;
  problems?: Localized[];
  wrong?: { name?: boolean; scopes?: boolean };
}

/** How many days a key may be valid, and what is proposed; 0 means until it is ended. */
const LIFETIMES = [30, 90, 365, 0];
const PROPOSED_DAYS = 90;

/** The page on which users create, rotate and end their API keys. */
export async function keysPagePlugin(fastify: FastifyTypebox, options: PagesWith<'keys'>): Promise<void> {
  const { keys, identityOf, pages, path } = options;
  const config = access('recent-person', { page: true });

  fastify.get('/keys', { config, schema: { querystring: NoticeQuery } }, async (request, reply) => {
    const isEnded = request.query.done === 'ended';
    return send(request, reply, isEnded ? { notice: message('user-keys.ended') } : {});
  });

  fastify.post('/keys/create', { config, schema: { body: NewKeyBody } }, async (request, reply) => {
    const { name, scopes: chosen = [] } = request.body;
    const days = Number(request.body.days);
    const typed: Failure = { name, days, scopes: [chosen].flat() };
    const refuse = (wrong: keyof NonNullable<Failure['wrong']> | undefined, problem: string) =>
      send(request, reply.code(422), {
        ...typed,
        problems: [message(problem)],
        ...(wrong && { wrong: { [wrong]: true } }),
      });
    pages.keepForm(request, await pageOf(request, typed));
    if (!matchesSchema(name, DisplayName)) return refuse('name', 'account-passkey.name-invalid');
    if (typed.scopes.length === 0) return refuse('scopes', 'user-keys.scopes-missing');
    const expiresAt = new Date(options.now() + days * DAY).toISOString();
    const given = { name, scopes: [...typed.scopes], ...(days > 0 && { expiresAt }) };
    return keys.create(makerOf(request), given, requestSource(request)).then(
      (created) => sendCreated(request, reply, created),
      (error: unknown) => {
        if (error instanceof AppError && error.code === 'TOO_MANY_KEYS')
          return refuse(undefined, 'user-keys.full');
        throw error;
      },
    );
  });

  fastify.post('/keys/rotate', { config, schema: { body: KeyBody } }, async (request, reply) => {
    pages.keepForm(request, await pageOf(request));
    const created = await keys.rotate(makerOf(request), request.body.id, {}, requestSource(request));
    return sendCreated(request, reply, created);
  });

  fastify.post('/keys/end', { config, schema: { body: KeyBody } }, async (request, reply) => {
    const { id: subject } = identityOf(request).user;
    await keys.end(subject, request.body.id, { subject, ip: requestSource(request).ip });
    return reply.redirect(`${path()}/keys?done=ended`, 303);
  });

  const makerOf = (request: FastifyRequest) => {
    const identity = identityOf(request);
    return { identity, owner: identity.user.id };
  };
  const send = async (request: FastifyRequest, reply: FastifyReply, state?: object) =>
    pages.send(reply, await pageOf(request, state));
  const sendCreated = (request: FastifyRequest, reply: FastifyReply, { key, secret }: CreatedKey) =>
    send(request, reply, { created: { secret, name: key.name } });

  async function pageOf(request: FastifyRequest, state: Partial<Failure> & object = {}) {
    const owned = await keys.list(identityOf(request).user.id);
    const { scopes = [], days: chosen = PROPOSED_DAYS, ...others } = state;
    const view = {
      path: `${path()}/keys`,
      keys: owned.map((key) => viewOf(key, options.now())),
      hasKeys: owned.length > 0,
      choices: keys.scopes().map((scope, index) => ({
        scope,
        isChosen: scopes.includes(scope),
        isFirst: index === 0,
      })),
      lifetimes: LIFETIMES.map((days) => ({
        days,
        label: days > 0 ? message('user-keys.days', { count: days }) : message('user-keys.until-ended'),
        isChosen: days === chosen,
      })),
      ...others,
    };
    return { template: 'user-keys', view };
  }
}

function viewOf({ id, name, scopes, networks, expiresAt, replacedBy, lastUsedAt }: KeyView, now: number) {
  const end = expiresAt === null ? Number.POSITIVE_INFINITY : Date.parse(expiresAt);
  const until = end <= now ? 'user-keys.expired' : 'user-keys.until';
  return {
    id,
    name,
    scopes: [...scopes, ...networks].join(', '),
    canRotate: replacedBy === null && end > now,
    used:
      lastUsedAt === null
        ? message('account-passkey.unused')
        : message('account-passkey.used', { when: longTime(Date.parse(lastUsedAt)) }),
    ...(expiresAt !== null && { until: message(until, { when: longTime(end) }) }),
  };
}

import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Localized, longTime, message } from '../../core/http/messages.js';
import type { Page } from '../../core/http/pages.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { DisplayName, matchesSchema } from '../../core/http/schemas.js';
import type { PasskeyDocument } from '../passkeys/store.js';
import { type AccountOptions, deviceOf } from './page.js';
import {
  AccountQuery,
  type Notice,
  noticeIn,
  PasskeyBody,
  PasskeyNameBody,
  PasskeyRemovalBody,
} from './schemas.js';
import type { Passkeys } from './sources.js';

/** What is wrong with a form: the one that adds a passkey, or the one that names it. */
interface Failure {
  problems: readonly Localized[];
  wrong: { added: true } | { id: string };
  name: string;
}

/** The page on which people add, name and remove passkeys. */
export async function passkeysPlugin(
  fastify: FastifyTypebox,
  options: AccountOptions & { passkeys: Passkeys },
): Promise<void> {
  const { guard, passkeys, pages, path } = options;
  const config = access('recent-person', { page: true, changesFactors: true });
  const own = () => `${path()}/passkeys`;

  fastify.get('/passkeys', { config, schema: { querystring: AccountQuery } }, async (request, reply) =>
    pages.send(reply, await pageOf(request, noticeIn(request.query))),
  );

  fastify.post('/passkeys/add', { config, schema: { body: PasskeyBody } }, async (request, reply) => {
    const { form, credential, name } = request.body;
    const show = async (problem: string) => {
      const failure = { problems: [message(problem)], wrong: { added: true }, name } as const;
      return pages.send(reply.code(422), await pageOf(request, failure));
    };
    if (!matchesSchema(name, DisplayName)) return show('account-passkey.name-invalid');
    const { principal } = guard.personOf(request);
    const { id } = principal;
    if (passkeys.isOpenTo?.(principal) === false) return reply.redirect(own(), 303);
    const isAdded = await passkeys.add(id, { form, credential, name }, requestSource(request));
    return isAdded ? returnWith(reply, 'passkey-added') : show('account-passkey.rejected');
  });

  fastify.post('/passkeys/rename', { config, schema: { body: PasskeyNameBody } }, async (request, reply) => {
    const { id, name } = request.body;
    if (!matchesSchema(name, DisplayName)) {
      const failure = { problems: [message('account-passkey.name-invalid')], wrong: { id }, name };
      return pages.send(reply.code(422), await pageOf(request, failure));
    }
    await passkeys.rename(guard.personOf(request).principal.id, id, name, requestSource(request));
    return returnWith(reply, 'passkey-renamed');
  });

  fastify.post(
    '/passkeys/remove',
    { config, schema: { body: PasskeyRemovalBody } },
    async (request, reply) => {
      const { id } = guard.personOf(request).principal;
      if ((await passkeys.remove(id, request.body.id, requestSource(request))) === 'last') {
        const problems = [message('account-passkey.last')];
        return pages.send(reply.code(422), await pageOf(request, { problems }));
      }
      return returnWith(reply, 'passkey-removed');
    },
  );

  const returnWith = (reply: FastifyReply, done: Notice): FastifyReply =>
    reply.redirect(`${own()}?done=${done}`, 303);

  async function pageOf(
    request: FastifyRequest,
    { wrong, name, ...state }: Partial<Failure> & { notice?: Localized },
  ): Promise<Page> {
    const { principal } = guard.personOf(request);
    const form = guard.formsOf(request).issue();
    const isOpen = passkeys.isOpenTo?.(principal) ?? true;
    const [owned, options] = await Promise.all([
      passkeys.list(principal.id),
      isOpen ? passkeys.creationOptions(principal, form) : null,
    ]);
    const { browser, system } = requestSource(request);
    const device = deviceOf({ browser: browser?.(), system: system?.() });
    const isAdded = wrong !== undefined && 'added' in wrong;
    const wrongId = wrong !== undefined && 'id' in wrong ? wrong.id : undefined;
    const view = {
      path: own(),
      form,
      passkeys: owned.map((passkey) => ({
        ...viewOf(passkey),
        ...(passkey.id === wrongId && { isWrong: true, typed: name }),
      })),
      hasPasskeys: owned.length > 0,
      options,
      mustConfirm: !isOpen,
      suggested: isAdded ? name : (device ?? message('account-passkey.unnamed')),
      wrong: wrong && { added: isAdded },
      ...state,
    };
    return { template: 'account-passkeys', view, ...(options !== null && { script: passkeys.script }) };
  }
}

const viewOf = ({ id, name, backedUp, createdAt, lastUsedAt }: PasskeyDocument) => ({
  id,
  name,
  typed: name,
  isBackedUp: backedUp,
  added: message('account-passkey.added', { when: longTime(createdAt) }),
  used:
    lastUsedAt === undefined
      ? message('account-passkey.unused')
      : message('account-passkey.used', { when: longTime(lastUsedAt) }),
});

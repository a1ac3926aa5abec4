import type { FastifyRequest } from 'fastify';
import { type Localized, message } from '../../core/http/messages.js';
import type { Page } from '../../core/http/pages.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import type { AccountOptions } from './page.js';
import { DeletionBody } from './schemas.js';

/** The page on which a person deletes the account: the user name has to be typed, and the password. */
export async function deletionPlugin(fastify: FastifyTypebox, options: AccountOptions): Promise<void> {
  const { guard, signIn, pages, path } = options;
  const { people } = options.sources;
  const { reservesHandles } = people;
  const config = access('recent-person', { page: true, changesFactors: true });

  fastify.get('/delete', { config }, (request, reply) => pages.send(reply, formOf(request)));

  fastify.post('/delete', { config, schema: { body: DeletionBody } }, async (request, reply) => {
    const { principal } = guard.personOf(request);
    const { confirm, password = '' } = request.body;
    pages.keepForm(request, formOf(request, { confirm }));
    if (confirm.trim() !== principal.handle) {
      const problems = [message('account-delete.differs')];
      return pages.send(reply.code(422), formOf(request, { confirm, problems, wrong: { confirm: true } }));
    }
    if (await people.delete(principal, password, requestSource(request))) {
      signIn.forgetSession(reply);
      return reply.redirect(`${path()}/deleted`, 303);
    }
    const problems = [message('account-delete.wrong')];
    return pages.send(reply.code(401), formOf(request, { confirm, problems, wrong: { password: true } }));
  });

  fastify.get('/deleted', { config: access('public', { page: true }) }, (_request, reply) =>
    pages.send(reply, { template: 'account-deleted', view: { reservesHandles } }),
  );

  function formOf(
    request: FastifyRequest,
    state: {
      confirm?: string;
      problems?: Localized[];
      wrong?: { confirm?: true; password?: true };
    } = {},
  ): Page {
    const { principal } = guard.personOf(request);
    const view = {
      action: `${path()}/delete`,
      handle: principal.handle,
      hasPassword: !principal.passkeyOnly,
      reservesHandles,
      ...state,
    };
    return { template: 'account-delete', view };
  }
}

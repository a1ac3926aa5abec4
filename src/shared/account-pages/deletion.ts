import type { FastifyRequest } from 'fastify';
import { type Localized, message } from '../../core/http/messages.js';
import type { Page, Pages } from '../../core/http/pages.js';
import { access, originOf, type Scope } from '../../core/http/scope.js';
import type { PersonGuard, SignIn } from './guard.js';
import { DeletionBody } from './schemas.js';
import type { AccountService, AccountSources } from './service.js';

export interface DeletionOptions {
  guard: PersonGuard;
  service: Pick<AccountService, 'delete'>;
  sources: { people: Pick<AccountSources['people'], 'reservesHandles'> };
  signIn: Pick<SignIn, 'forgetSession'>;
  pages: Pages;
  /** The path of the account page, which includes what a proxy adds. */
  path(): string;
}

/** The page on which a person deletes the account: the user name has to be typed, and the password. */
export async function deletionPlugin(scope: Scope, options: DeletionOptions): Promise<void> {
  const { guard, service, signIn, pages, path } = options;
  const { reservesHandles } = options.sources.people;
  const config = access('recent-person', { page: true });

  scope.get('/delete', { config }, (request, reply) => pages.send(reply, formOf(request)));

  scope.post('/delete', { config, schema: { body: DeletionBody } }, async (request, reply) => {
    guard.checkForm(request);
    const { principal } = guard.personOf(request);
    const { confirm, password = '' } = request.body;
    pages.keepForm(request, formOf(request, { confirm }));
    if (confirm.trim() !== principal.handle) {
      const problems = [message('account-delete.differs')];
      return pages.send(reply.code(422), formOf(request, { confirm, problems, wrong: { confirm: true } }));
    }
    if (await service.delete(principal, password, originOf(request))) {
      signIn.forgetSession(reply);
      return reply.redirect(`${path()}/deleted`, 303);
    }
    const problems = [message('account-delete.wrong')];
    return pages.send(reply.code(401), formOf(request, { confirm, problems, wrong: { password: true } }));
  });

  scope.get('/deleted', { config: access('public', { page: true }) }, (_request, reply) =>
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
      accountHref: path(),
      form: guard.formsOf(request).issue(),
      handle: principal.handle,
      hasPassword: !principal.passkeyOnly,
      reservesHandles,
      ...state,
    };
    return { template: 'account-delete', view };
  }
}

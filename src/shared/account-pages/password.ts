import type { FastifyRequest } from 'fastify';
import { type Localized, message } from '../../core/http/messages.js';
import type { Page, Pages } from '../../core/http/pages.js';
import { access, originOf, type Scope } from '../../core/http/scope.js';
import { AppError } from '../../core/kernel/errors.js';
import { passwordSentences } from '../../core/passwords/problems.js';
import type { PersonGuard, SignIn } from './guard.js';
import { PasswordBody } from './schemas.js';
import type { AccountSources } from './service.js';

export interface PasswordOptions {
  guard: PersonGuard;
  people: Pick<AccountSources['people'], 'changePassword' | 'keepsSession'>;
  signIn: Pick<SignIn, 'forgetSession'>;
  pages: Pages;
  /** The path of the account page, which includes what a proxy adds. */
  path(): string;
  hasAccountPages: boolean;
}

/** The errors of a new password that is not possible. */
const PASSWORD_ERRORS = ['WEAK_PASSWORD', 'VALIDATION_ERROR'];

/** The page on which a signed-in person changes the password. */
export async function passwordPlugin(scope: Scope, options: PasswordOptions): Promise<void> {
  const { guard, people, signIn, pages, path, hasAccountPages } = options;
  const config = access('person', { page: true });
  const own = () => `${path()}/password`;
  const accountHref = () => (hasAccountPages ? path() : undefined);

  scope.get('/password', { config }, (request, reply) => pages.send(reply, formOf(request)));

  scope.get('/password/done', { config: access('public', { page: true }) }, (_request, reply) => {
    return pages.send(reply, { template: 'account-password-done', view: { accountHref: accountHref() } });
  });

  scope.post('/password', { config, schema: { body: PasswordBody } }, async (request, reply) => {
    guard.checkForm(request);
    const { principal, session } = guard.personOf(request);
    const { current_password: current, password: chosen, password_confirm: again } = request.body;
    if (again !== chosen) {
      const problems = [message('password.differ')];
      return pages.send(reply.code(422), formOf(request, { problems, wrong: { password: true } }));
    }
    pages.keepForm(request, formOf(request));
    try {
      if (await people.changePassword(principal, { current, chosen }, session, originOf(request))) {
        if (people.keepsSession) return reply.redirect(`${path()}?done=password-changed`, 303);
        signIn.forgetSession(reply);
        return reply.redirect(`${own()}/done`, 303);
      }
    } catch (error) {
      if (!(error instanceof AppError) || !PASSWORD_ERRORS.includes(error.code)) throw error;
      const form = formOf(request, { problems: passwordSentences(error), wrong: { password: true } });
      return pages.send(reply.code(422), form);
    }
    const problems = [message('account-password.wrong')];
    return pages.send(reply.code(401), formOf(request, { problems, wrong: { current: true } }));
  });

  /** @param failure the problems, and the field at which they stand */
  function formOf(
    request: FastifyRequest,
    failure: { problems?: Localized[]; wrong?: { current?: true; password?: true } } = {},
  ): Page {
    const { handle, passkeyOnly } = guard.personOf(request).principal;
    const resetHref = `${path()}/forgot-password`;
    const form = guard.formsOf(request).issue();
    const view = {
      ...{ action: own(), form, handle, accountHref: accountHref(), resetHref },
      hasPassword: !passkeyOnly,
      ...failure,
    };
    return { template: 'account-password', view };
  }
}

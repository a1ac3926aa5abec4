import type { FastifyRequest } from 'fastify';
import { type Localized, message } from '../http/messages.js';
import type { Page, Pages } from '../http/pages.js';
import { access, originOf, type Scope } from '../http/scope.js';
import { AppError } from '../kernel/errors.js';
import type { Audit } from '../ops/audit.js';
import { passwordSentences } from '../passwords/problems.js';
import type { PersonGuard, SignIn } from './guard.js';
import { PasswordBody } from './schemas.js';
import type { AccountService } from './service.js';

export interface PasswordOptions {
  guard: PersonGuard;
  service: Pick<AccountService, 'changePassword'>;
  signIn: Pick<SignIn, 'forgetSession'>;
  pages: Pages;
  audit: Pick<Audit, 'recordFailure'>;
  mount(): string;
  hasAccountPages: boolean;
}

/** The page on which a signed-in person changes the password. */
export async function passwordPlugin(scope: Scope, options: PasswordOptions): Promise<void> {
  const { guard, service, signIn, pages, audit, mount, hasAccountPages } = options;
  const config = access('person', { page: true });
  const path = () => `${mount()}/account/password`;

  scope.get('/account/password', { config }, (request, reply) => pages.send(reply, formOf(request)));

  scope.get('/account/password/done', { config: access('public', { page: true }) }, (_request, reply) => {
    const accountHref = hasAccountPages ? `${mount()}/account` : undefined;
    return pages.send(reply, { template: 'account-password-done', view: { accountHref } });
  });

  scope.post('/account/password', { config, schema: { body: PasswordBody } }, async (request, reply) => {
    guard.checkForm(request);
    const { principal } = guard.personOf(request);
    const { current_password: current, password: chosen, password_confirm: again } = request.body;
    const origin = originOf(request);
    if (again !== chosen) {
      const problems = [message('password.differ')];
      return pages.send(reply.code(422), formOf(request, { problems, wrong: { password: true } }));
    }
    pages.keepForm(request, formOf(request));
    try {
      if (await service.changePassword(principal, { current, chosen }, origin)) {
        signIn.forgetSession(reply);
        return reply.redirect(`${path()}/done`, 303);
      }
    } catch (error) {
      if (!(error instanceof AppError) || error.statusCode !== 422) throw error;
      const form = formOf(request, { problems: passwordSentences(error), wrong: { password: true } });
      return pages.send(reply.code(422), form);
    }
    await audit.recordFailure({ event: 'login.failed', subject: principal.id, ip: origin.ip });
    const problems = [message('account-password.wrong')];
    return pages.send(reply.code(401), formOf(request, { problems, wrong: { current: true } }));
  });

  /** @param failure the problems, and the field at which they stand */
  function formOf(
    request: FastifyRequest,
    failure: { problems?: Localized[]; wrong?: { current?: true; password?: true } } = {},
  ): Page {
    const { handle, passkeyOnly } = guard.personOf(request).principal;
    const resetHref = `${mount()}/account/forgot-password`;
    const accountHref = hasAccountPages ? `${mount()}/account` : undefined;
    const form = guard.formsOf(request).issue();
    const view = {
      ...{ action: path(), form, handle, accountHref, resetHref },
      hasPassword: !passkeyOnly,
      ...failure,
    };
    return { template: 'account-password', view };
  }
}

import type { FastifyRequest } from 'fastify';
import { type Localized, message } from '../../core/http/messages.js';
import type { Page } from '../../core/http/pages.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { AppError } from '../../core/kernel/errors.js';
import { passwordSentences } from '../../core/passwords/problems.js';
import type { AccountOptions } from './page.js';
import { PasswordBody } from './schemas.js';

/** The errors of a new password that is not possible. */
const PASSWORD_ERRORS = ['WEAK_PASSWORD', 'VALIDATION_ERROR'];

/** The page on which a signed-in person changes the password. */
export async function passwordPlugin(fastify: FastifyTypebox, options: AccountOptions): Promise<void> {
  const { guard, signIn, pages, path, hasAccountPages } = options;
  const { people } = options.sources;
  const config = access('person', { page: true });
  const own = () => `${path()}/password`;
  const accountHref = () => (hasAccountPages ? path() : undefined);

  fastify.get('/password', { config }, (request, reply) => pages.send(reply, formOf(request)));

  fastify.get('/password/done', { config: access('public', { page: true }) }, (_request, reply) => {
    return pages.send(reply, { template: 'account-password-done', view: { accountHref: accountHref() } });
  });

  fastify.post('/password', { config, schema: { body: PasswordBody } }, async (request, reply) => {
    const { principal, session } = guard.personOf(request);
    const { current_password: current, password: chosen, password_confirm: again } = request.body;
    if (again !== chosen) {
      const problems = [message('password.differ')];
      return pages.send(reply.code(422), formOf(request, { problems, wrong: { password: true } }));
    }
    pages.keepForm(request, formOf(request));
    try {
      if (await people.changePassword(principal, { current, chosen }, session, requestSource(request))) {
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
    const view = {
      action: own(),
      handle,
      accountHref: accountHref(),
      resetHref: `${path()}/forgot-password`,
      hasPassword: !passkeyOnly,
      ...failure,
    };
    return { template: 'account-password', view };
  }
}

import type { FastifyRequest } from 'fastify';
import { type Localized, message } from '../http/messages.js';
import type { Page, Pages } from '../http/pages.js';
import { access, type Origin, originOf, type Scope } from '../http/scope.js';
import { AppError } from '../kernel/errors.js';
import { secretsEqual, sha256 } from '../kernel/secrets.js';
import type { Audit } from '../ops/audit.js';
import { passwordSentences } from '../passwords/problems.js';
import type { Principal } from './directory.js';
import { oidcErrors } from './errors.js';
import { PasswordBody } from './schemas.js';
import { type Cookies, mountPath, type SessionService, type SignedInUser } from './sessions.js';

/**
 * Changes the password and revokes everything issued under the old one. `false` if `current` is wrong or was changed
 * in the meantime.
 * @throws WEAK_PASSWORD, RATE_LIMITED, OVERLOADED
 */
export type ChangePassword = (
  principal: Pick<Principal, 'id' | 'handle'>,
  passwords: { current: string; chosen: string },
  from: Origin,
) => Promise<boolean>;

export interface AccountPluginOptions {
  sessions: SessionService;
  cookies: Cookies;
  changePassword: ChangePassword;
  pages: Pages;
  audit: Audit;
  issuer(): string;
}

/** Pages on which signed-in users manage their account. */
export async function accountPlugin(scope: Scope, options: AccountPluginOptions): Promise<void> {
  const { sessions, cookies, changePassword, pages, audit, issuer } = options;
  const config = access('public', { page: true });
  const path = () => `${mountPath(issuer())}/account/password`;

  scope.get('/account/password', { config }, async (request, reply) =>
    pages.send(reply, formOf(await userOf(request))),
  );

  scope.get('/account/password/done', { config }, (_request, reply) =>
    pages.send(reply, { template: 'account-password-done' }),
  );

  scope.post('/account/password', { config, schema: { body: PasswordBody } }, async (request, reply) => {
    const { form, current_password: current, password: chosen, password_confirm: again } = request.body;
    const user = await userOf(request);
    if (!secretsEqual(form, formTokenOf(user.token))) throw oidcErrors.login_rejected();
    const origin = originOf(request);
    if (again !== chosen) {
      const problems = [message('password.differ')];
      return pages.send(reply.code(422), formOf(user, { problems, wrong: { password: true } }));
    }
    pages.keepForm(request, formOf(user));
    try {
      if (await changePassword(user.principal, { current, chosen }, origin)) {
        cookies.session.clear(reply);
        return reply.redirect(`${path()}/done`, 303);
      }
    } catch (error) {
      if (!(error instanceof AppError) || error.statusCode !== 422) throw error;
      const form = formOf(user, { problems: passwordSentences(error), wrong: { password: true } });
      return pages.send(reply.code(422), form);
    }
    await audit.recordFailure({ event: 'login.failed', subject: user.principal.id, ip: origin.ip });
    const problems = [message('account-password.wrong')];
    return pages.send(reply.code(401), formOf(user, { problems, wrong: { current: true } }));
  });

  /** @throws sign_in_first */
  async function userOf(request: FastifyRequest): Promise<SignedInUser & { token: string }> {
    const token = cookies.session.read(request);
    const user = await sessions.find(token);
    if (!user || token === undefined) throw oidcErrors.sign_in_first();
    return { ...user, token };
  }

  /** @param failure the problems, and the field at which they stand */
  function formOf(
    { principal, token }: SignedInUser & { token: string },
    failure: { problems?: Localized[]; wrong?: { current?: true; password?: true } } = {},
  ): Page {
    const view = { action: path(), form: formTokenOf(token), handle: principal.handle, ...failure };
    return { template: 'account-password', view };
  }
}

/** Derived from the session token, so that only pages shown in this session contain it. */
const formTokenOf = (token: string): string => sha256(`change the password ${token}`);

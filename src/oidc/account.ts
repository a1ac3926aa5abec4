import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Pages } from '../http/pages.js';
import { access, type Origin, originOf, type Scope } from '../http/scope.js';
import { AppError } from '../kernel/errors.js';
import { secretsEqual, sha256 } from '../kernel/secrets.js';
import type { Audit } from '../ops/audit.js';
import { type Cookies, mountPath } from './cookies.js';
import { oidcErrors } from './errors.js';
import type { Principal } from './model.js';
import { PasswordBody } from './schemas.js';
import type { SessionService, Visitor } from './sessions.js';

/**
 * Sets a new password and ends everything that was given out under the old one. `false`: `current` is wrong, or
 * was changed meanwhile.
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

/** What people who have signed in may do to their own account. */
export async function accountPlugin(scope: Scope, options: AccountPluginOptions): Promise<void> {
  const { sessions, cookies, changePassword, pages, audit, issuer } = options;
  const config = access('public', { page: true });
  const path = () => `${mountPath(issuer())}/account/password`;

  scope.get('/account/password', { config }, async (request, reply) =>
    showForm(reply, await visitorOf(request)),
  );

  scope.get('/account/password/done', { config }, (_request, reply) =>
    pages.send(reply, 'account-password-done', { title: 'Password changed' }),
  );

  scope.post('/account/password', { config, schema: { body: PasswordBody } }, async (request, reply) => {
    const { form, current_password: current, password: chosen, password_confirm: again } = request.body;
    const visit = await visitorOf(request);
    if (!secretsEqual(form, formOf(visit.token))) throw oidcErrors.login_rejected();
    const origin = originOf(request);
    if (again !== chosen) {
      return showForm(reply.code(422), visit, {
        isNewWrong: true,
        problems: ['The new passwords do not match.'],
      });
    }
    try {
      if (await changePassword(visit.principal, { current, chosen }, origin)) {
        cookies.session.clear(reply);
        return reply.redirect(`${path()}/done`, 303);
      }
    } catch (error) {
      if (!(error instanceof AppError) || error.statusCode !== 422) throw error;
      const details = (error.details ?? []).map(({ message }) => `The new password ${message}.`);
      return showForm(reply.code(422), visit, { isNewWrong: true, problems: [error.message, ...details] });
    }
    await audit.recordFailure({ event: 'login.failed', subject: visit.principal.id, ip: origin.ip });
    return showForm(reply.code(401), visit, {
      isCurrentWrong: true,
      problems: ['The current password is incorrect.'],
    });
  });

  /** @throws sign_in_first */
  async function visitorOf(request: FastifyRequest): Promise<Visitor & { token: string }> {
    const token = cookies.session.of(request);
    const visitor = await sessions.find(token);
    if (!visitor || token === undefined) throw oidcErrors.sign_in_first();
    return { ...visitor, token };
  }

  function showForm(
    reply: FastifyReply,
    { principal, token }: Visitor & { token: string },
    failure: { problems?: string[]; isCurrentWrong?: true; isNewWrong?: true } = {},
  ): FastifyReply {
    return pages.send(reply, 'account-password', {
      title: 'Change your password',
      action: path(),
      form: formOf(token),
      handle: principal.handle,
      ...failure,
    });
  }
}

/** Known only to pages that this browser was shown in this session. */
const formOf = (token: string): string => sha256(`change the password ${token}`);

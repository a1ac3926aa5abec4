import type { FastifyRequest } from 'fastify';
import { message } from '../../../../core/http/messages.js';
import type { Pages } from '../../../../core/http/pages.js';
import { fits, OptionalName } from '../../../../core/http/schemas.js';
import { access, originOf, type Scope } from '../../../../core/http/scope.js';
import { AppError } from '../../../../core/kernel/errors.js';
import type { Audit } from '../../../../core/ops/audit.js';
import { credentialProblems } from '../../../../core/passwords/form-problems.js';
import type { Directory, Principal, SignUp } from '../../directory.js';
import { oidcErrors } from '../../errors.js';
import { SignUpBody, type SignUpForm } from '../../schemas.js';
import { admitsNewPeople, type FormState, nameOf, type Purpose, type SignInPages } from '../pages.js';
import type { InteractionForms } from './forms.js';

export interface SignUpPluginOptions {
  forms: InteractionForms;
  signInPages: SignInPages;
  signUp: SignUp;
  directory: Pick<Directory, 'authenticate' | 'findByHandle'>;
  pages: Pages;
  audit: Pick<Audit, 'recordFailure'>;
}

/** The form with which people create an account, and continue to what they wanted to sign in for. */
export async function signUpPlugin(scope: Scope, options: SignUpPluginOptions): Promise<void> {
  const { forms, signInPages, signUp, directory, pages, audit } = options;
  const config = access('signup', { page: true });

  scope.post('/authorize/sign-up', { config, schema: { body: SignUpBody } }, async (request, reply) => {
    const { interaction: token, name = '', password, password_confirm: again } = request.body;
    const handle = request.body.handle.trim();
    const resumed = await forms.resumeSignIn(request, token);
    if ('error' in resumed) return forms.respondWithError(reply, resumed.error, 303);
    const { purpose, isExpired } = resumed;
    if (!('returnTo' in purpose) && !admitsNewPeople(purpose)) throw oidcErrors.login_rejected();
    const show = (status: number, failure: Pick<FormState, 'problems' | 'wrong'>) =>
      pages.send(reply.code(status), signInPages.signUp(purpose, { token, handle, name, ...failure }));
    if (isExpired) {
      return forms.renew(request, reply, purpose, (renewed) =>
        signInPages.signUp(purpose, { ...renewed, handle, name }),
      );
    }
    pages.keepForm(request, signInPages.signUp(purpose, { token, handle, name }));
    if (!fits(name, OptionalName)) {
      return show(422, { problems: [message('account.name-invalid')], wrong: { name: true } });
    }
    if (again !== password) {
      return show(422, { problems: [message('password.differ')], wrong: { password: true } });
    }
    try {
      const principal = await register(request, purpose, { handle, password, ...(name !== '' && { name }) });
      return await forms.acceptPassword(request, reply, purpose, principal);
    } catch (error) {
      if (!(error instanceof AppError) || ![400, 409, 422].includes(error.statusCode)) throw error;
      return show(error.statusCode, credentialProblems(error));
    }
  });

  /** Creates the account. On a double click, the browser shows the response to the second form, which signs in. */
  async function register(
    request: FastifyRequest<{ Body: SignUpForm }>,
    purpose: Purpose,
    input: Parameters<SignUp>[0],
  ): Promise<Principal> {
    const origin = originOf(request);
    try {
      return await signUp(input, origin);
    } catch (error) {
      if (!(error instanceof AppError) || error.code !== 'handle_taken') throw error;
      const { handle, password } = input;
      const own = await directory.authenticate(handle, password, origin, ({ kind }) => kind === 'human');
      if (own) return own;
      const named = await directory.findByHandle(handle);
      const subject = named && { subject: named.id };
      await audit.recordFailure({
        event: 'login.failed',
        ip: origin.ip,
        ...subject,
        detail: nameOf(purpose),
      });
      throw error;
    }
  }
}

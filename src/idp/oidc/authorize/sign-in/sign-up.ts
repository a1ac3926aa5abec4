import type { FastifyRequest } from 'fastify';
import { message } from '../../../../core/http/messages.js';
import { access, type FastifyTypebox, requestSource } from '../../../../core/http/routes.js';
import { matchesSchema, OptionalName } from '../../../../core/http/schemas.js';
import { AppError } from '../../../../core/kernel/errors.js';
import { credentialProblems } from '../../../../core/passwords/form-problems.js';
import type { Principal, SignUp } from '../../directory.js';
import { oidcErrors } from '../../errors.js';
import { SignUpBody, type SignUpForm } from '../../schemas.js';
import { admitsNewPeople, type FormState, nameOf, type SignInRequest } from '../pages.js';
import { checkCredentials } from './credentials.js';
import type { SignInServices } from './forms.js';

/** The form with which people create an account, and continue to what they wanted to sign in for. */
export async function signUpPlugin(fastify: FastifyTypebox, services: SignInServices): Promise<void> {
  const { forms, signInPages, signUp, pages } = services;
  const config = access('signup', { page: true });

  fastify.post('/authorize/sign-up', { config, schema: { body: SignUpBody } }, async (request, reply) => {
    const { interaction: token, name = '', password, password_confirm: again } = request.body;
    const handle = request.body.handle.trim();
    const resumed = await forms.resumeSignIn(request, reply, token, (signInRequest, renewed) =>
      signInPages.signUp(requireOpen(signInRequest), { ...renewed, handle, name }),
    );
    if (!resumed) return reply;
    const signInRequest = requireOpen(resumed.signInRequest);
    const show = (status: number, failure: Pick<FormState, 'problems' | 'wrong'>) =>
      pages.send(reply.code(status), signInPages.signUp(signInRequest, { token, handle, name, ...failure }));
    pages.keepForm(request, signInPages.signUp(signInRequest, { token, handle, name }));
    if (!matchesSchema(name, OptionalName)) {
      return show(422, { problems: [message('account.name-invalid')], wrong: { name: true } });
    }
    if (again !== password) {
      return show(422, { problems: [message('password.differ')], wrong: { password: true } });
    }
    try {
      const principal = await register(request, signInRequest, {
        handle,
        password,
        ...(name !== '' && { name }),
      });
      return await forms.acceptPassword(request, reply, signInRequest, principal);
    } catch (error) {
      if (!(error instanceof AppError) || ![400, 409, 422].includes(error.statusCode)) throw error;
      return show(error.statusCode, credentialProblems(error));
    }
  });

  /** Creates the account. On a double click, the browser shows the response to the second form, which signs in. */
  async function register(
    request: FastifyRequest<{ Body: SignUpForm }>,
    signInRequest: SignInRequest,
    input: Parameters<SignUp>[0],
  ): Promise<Principal> {
    try {
      return await signUp(input, requestSource(request));
    } catch (error) {
      if (!(error instanceof AppError) || error.code !== 'handle_taken') throw error;
      const credentials = { username: input.handle, password: input.password };
      const isHuman = ({ kind }: Pick<Principal, 'kind'>) => kind === 'human';
      const own = await checkCredentials(services, request, credentials, isHuman, nameOf(signInRequest));
      if (own) return own;
      throw error;
    }
  }
}

/** @throws login_rejected if new people could not be the user of the request */
export function requireOpen(signInRequest: SignInRequest): SignInRequest {
  if (!('returnTo' in signInRequest) && !admitsNewPeople(signInRequest)) throw oidcErrors.login_rejected();
  return signInRequest;
}

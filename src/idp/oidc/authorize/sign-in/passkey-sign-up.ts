import { message } from '../../../../core/http/messages.js';
import { access, type FastifyTypebox, requestSource } from '../../../../core/http/routes.js';
import { matchesSchema, OptionalName } from '../../../../core/http/schemas.js';
import { AppError } from '../../../../core/kernel/errors.js';
import { credentialProblems } from '../../../../core/passwords/form-problems.js';
import type { PasskeySignUp } from '../../directory.js';
import { PasskeySignUpBody } from '../../schemas.js';
import { beginForm } from '../begin-form.js';
import type { FormState } from '../pages.js';
import type { SignInServices } from './forms.js';
import { requireOpen } from './sign-up.js';

/** The sign-up with a passkey and without a password, which the script of the sign-up page submits. */
export async function passkeySignUpPlugin(
  fastify: FastifyTypebox,
  services: SignInServices & { passkeySignUp: PasskeySignUp },
): Promise<void> {
  const { forms, passkeySignUp, signInPages, pages } = services;
  const config = access('signup', { page: true });
  const schema = { body: PasskeySignUpBody };

  fastify.post('/authorize/sign-up/passkey', { config, schema }, async (request, reply) => {
    const { interaction: form, name, credential } = request.body;
    const handle = request.body.handle.trim();
    const resumed = await forms.resumeSignIn(request, reply, form, (signInRequest, renewed) =>
      signInPages.signUp(requireOpen(signInRequest), { ...renewed, handle, name }),
    );
    if (!resumed) return reply;
    const signInRequest = requireOpen(resumed.signInRequest);
    // A challenge is used once, so that the next attempt needs another one.
    const next = { token: beginForm(services, request, reply, signInRequest), handle, name };
    const show = (status: number, failure: Pick<FormState, 'problems' | 'wrong'>) =>
      pages.send(reply.code(status), signInPages.signUp(signInRequest, { ...next, ...failure }));
    pages.keepForm(request, signInPages.signUp(signInRequest, next));
    if (!matchesSchema(name, OptionalName)) {
      return show(422, { problems: [message('account.name-invalid')], wrong: { name: true } });
    }
    const input = { handle, form, credential, ...(name !== '' && { name }) };
    try {
      const principal = await passkeySignUp.create(input, requestSource(request));
      if (principal) return await forms.acceptPasskey(request, reply, signInRequest, principal);
    } catch (error) {
      if (!(error instanceof AppError) || ![400, 409].includes(error.statusCode)) throw error;
      return show(error.statusCode, credentialProblems(error));
    }
    return show(422, { problems: [message('account-passkey.rejected')] });
  });
}

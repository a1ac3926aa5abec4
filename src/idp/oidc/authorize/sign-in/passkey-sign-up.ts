import { message } from '../../../../core/http/messages.js';
import type { Pages } from '../../../../core/http/pages.js';
import { fits, OptionalName } from '../../../../core/http/schemas.js';
import { access, originOf, type Scope } from '../../../../core/http/scope.js';
import { AppError } from '../../../../core/kernel/errors.js';
import { credentialProblems } from '../../../../core/passwords/form-problems.js';
import type { PasskeySignUp } from '../../directory.js';
import { oidcErrors } from '../../errors.js';
import { PasskeySignUpBody } from '../../schemas.js';
import { admitsNewPeople, type FormState, type SignInPages } from '../pages.js';
import type { InteractionForms } from './forms.js';

export interface PasskeySignUpPluginOptions {
  forms: InteractionForms;
  passkeySignUp: Pick<PasskeySignUp, 'create'>;
  signInPages: Pick<SignInPages, 'signUp'>;
  pages: Pages;
}

/** The sign-up with a passkey and without a password, which the script of the sign-up page submits. */
export async function passkeySignUpPlugin(
  scope: Scope,
  { forms, passkeySignUp, signInPages, pages }: PasskeySignUpPluginOptions,
): Promise<void> {
  const config = access('signup', { page: true });
  const schema = { body: PasskeySignUpBody };

  scope.post('/authorize/sign-up/passkey', { config, schema }, async (request, reply) => {
    const { interaction: form, name, credential } = request.body;
    const handle = request.body.handle.trim();
    const resumed = await forms.resumeSignIn(request, form);
    if ('error' in resumed) return forms.respondWithError(reply, resumed.error, 303);
    const { purpose, isExpired } = resumed;
    if (!('returnTo' in purpose) && !admitsNewPeople(purpose)) throw oidcErrors.login_rejected();
    if (isExpired) {
      return forms.renew(request, reply, purpose, (renewed) =>
        signInPages.signUp(purpose, { ...renewed, handle, name }),
      );
    }
    // A challenge is used once, so that the next attempt needs another one.
    const next = { token: forms.newToken(request, purpose), handle, name };
    const show = (status: number, failure: Pick<FormState, 'problems' | 'wrong'>) =>
      pages.send(reply.code(status), signInPages.signUp(purpose, { ...next, ...failure }));
    pages.keepForm(request, signInPages.signUp(purpose, next));
    if (!fits(name, OptionalName)) {
      return show(422, { problems: [message('account.name-invalid')], wrong: { name: true } });
    }
    const input = { handle, form, credential, ...(name !== '' && { name }) };
    try {
      const principal = await passkeySignUp.create(input, originOf(request));
      if (principal) return await forms.acceptPasskey(request, reply, purpose, principal);
    } catch (error) {
      if (!(error instanceof AppError) || ![400, 409].includes(error.statusCode)) throw error;
      return show(error.statusCode, credentialProblems(error));
    }
    return show(422, { problems: [message('account-passkey.rejected')] });
  });
}

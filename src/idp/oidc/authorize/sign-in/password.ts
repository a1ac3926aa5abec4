import { message } from '../../../../core/http/messages.js';
import type { Pages } from '../../../../core/http/pages.js';
import { access, type Scope } from '../../../../core/http/scope.js';
import { LoginBody } from '../../schemas.js';
import { nameOf, type SignInPages } from '../pages.js';
import { type CredentialsOptions, createCredentialsCheck } from './credentials.js';
import type { InteractionForms } from './forms.js';

export interface PasswordPluginOptions extends CredentialsOptions {
  forms: InteractionForms;
  signInPages: Pick<SignInPages, 'signIn'>;
  pages: Pages;
}

/** The form for user name and password. */
export async function passwordPlugin(scope: Scope, options: PasswordPluginOptions): Promise<void> {
  const { forms, signInPages, pages } = options;
  const checkCredentials = createCredentialsCheck(options);
  const config = access('public', { page: true });

  scope.post('/authorize/login', { config, schema: { body: LoginBody } }, async (request, reply) => {
    const { interaction: token, handle, password } = request.body;
    const resumed = await forms.resumeSignIn(request, token);
    if ('error' in resumed) return forms.respondWithError(reply, resumed.error, 303);
    const { purpose, isExpired } = resumed;
    if (isExpired) {
      return forms.renew(request, reply, purpose, (renewed) =>
        signInPages.signIn(purpose, { ...renewed, handle }),
      );
    }
    pages.keepForm(request, signInPages.signIn(purpose, { token, handle }));
    // Handles contain no spaces, but keyboards with autocompletion append one.
    const credentials = { username: handle.trim(), password };
    // Agents are rejected like a wrong password, so that stolen agent credentials cannot start a browser session.
    const principal = await checkCredentials(
      request,
      credentials,
      ({ kind }) => kind === 'human',
      nameOf(purpose),
    );
    if (principal) return forms.acceptPassword(request, reply, purpose, principal);
    const form = signInPages.signIn(purpose, { token, handle, problems: WRONG, wrong: true });
    return pages.send(reply.code(401), form);
  });
}

const WRONG = [message('sign-in.wrong')];

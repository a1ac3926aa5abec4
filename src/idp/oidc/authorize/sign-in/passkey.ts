import { message } from '../../../../core/http/messages.js';
import type { Pages } from '../../../../core/http/pages.js';
import { access, originOf, type Scope } from '../../../../core/http/scope.js';
import type { Directory, SignInPasskeys } from '../../directory.js';
import { PasskeyBody } from '../../schemas.js';
import { nameOf, type SignInPages } from '../pages.js';
import type { InteractionForms } from './forms.js';

export interface PasskeyPluginOptions {
  forms: InteractionForms;
  passkeys: Pick<SignInPasskeys, 'verify'>;
  directory: Pick<Directory, 'findPrincipal'>;
  signInPages: Pick<SignInPages, 'signIn'>;
  pages: Pages;
}

/** The sign-in with a passkey, which the script of the sign-in page submits. */
export async function passkeyPlugin(
  scope: Scope,
  { forms, passkeys, directory, signInPages, pages }: PasskeyPluginOptions,
): Promise<void> {
  const config = access('public', { page: true });

  const findPerson = async (sub: string) => {
    const principal = await directory.findPrincipal(sub);
    return principal?.kind === 'human' ? principal : null;
  };

  scope.post('/authorize/passkey', { config, schema: { body: PasskeyBody } }, async (request, reply) => {
    const { interaction: form, credential } = request.body;
    const resumed = await forms.resumeSignIn(request, form);
    if ('error' in resumed) return forms.respondWithError(reply, resumed.error, 303);
    const { purpose, isExpired } = resumed;
    if (isExpired) {
      return forms.renew(request, reply, purpose, (renewed) =>
        signInPages.signIn(purpose, { ...renewed, handle: '' }),
      );
    }
    // A challenge is used once, so that the next attempt needs another one.
    const next = { token: forms.newToken(request, purpose), handle: '' };
    pages.keepForm(request, signInPages.signIn(purpose, next));
    const principal = await passkeys.verify(
      { form, credential, purpose: nameOf(purpose) },
      findPerson,
      originOf(request),
    );
    if (principal) return forms.acceptPasskey(request, reply, purpose, principal);
    const problems = [message('sign-in.passkey-wrong')];
    return pages.send(reply.code(401), signInPages.signIn(purpose, { ...next, problems }));
  });
}

import { message } from '../../http/messages.js';
import type { Pages } from '../../http/pages.js';
import { access, originOf, type Scope } from '../../http/scope.js';
import { AMR } from '../claims.js';
import type { Directory, SecondFactor } from '../directory.js';
import { oidcErrors } from '../errors.js';
import { SecondFactorBody } from '../schemas.js';
import type { InteractionForms } from './forms.js';
import type { SignInPages } from './pages.js';

export interface SecondFactorPluginOptions {
  forms: InteractionForms;
  secondFactor: SecondFactor;
  directory: Pick<Directory, 'findPrincipal'>;
  signInPages: Pick<SignInPages, 'secondFactor' | 'signIn'>;
  pages: Pages;
}

/** The form for the second factor, which continues a sign-in with a password. */
export async function secondFactorPlugin(
  scope: Scope,
  { forms, secondFactor, directory, signInPages, pages }: SecondFactorPluginOptions,
): Promise<void> {
  const config = access('public', { page: true });

  scope.post(
    '/authorize/second-factor',
    { config, schema: { body: SecondFactorBody } },
    async (request, reply) => {
      const { interaction: token, code } = request.body;
      const resumed = await forms.resumeSignIn(request, token);
      if ('error' in resumed) return forms.respondWithError(reply, resumed.error, 303);
      const { purpose, proven, isExpired } = resumed;
      if (isExpired) {
        return forms.renew(request, reply, purpose, (renewed) =>
          signInPages.signIn(purpose, { ...renewed, handle: '' }),
        );
      }
      const principal = proven ? await directory.findPrincipal(proven.id) : null;
      // Without a password before it, or after the account was disabled or the password changed.
      if (!principal || principal.epoch !== proven?.epoch) throw oidcErrors.login_rejected();
      pages.keepForm(request, signInPages.secondFactor(purpose, { token }));
      if (await secondFactor.verify(principal.id, code, originOf(request))) {
        return forms.complete(request, reply, purpose, principal, AMR.secondFactor);
      }
      const problems = [message('second-factor.wrong')];
      return pages.send(reply.code(401), signInPages.secondFactor(purpose, { token, problems }));
    },
  );
}

import { message } from '../../../../core/http/messages.js';
import { access, type FastifyTypebox, requestSource } from '../../../../core/http/routes.js';
import type { SignInPasskeys } from '../../directory.js';
import { PasskeyBody } from '../../schemas.js';
import { beginForm } from '../begin-form.js';
import { nameOf } from '../pages.js';
import type { SignInServices } from './forms.js';

/** The sign-in with a passkey, which the script of the sign-in page submits. */
export async function passkeyPlugin(
  fastify: FastifyTypebox,
  services: SignInServices & { passkeys: SignInPasskeys },
): Promise<void> {
  const { forms, passkeys, directory, signInPages, pages } = services;
  const config = access('public', { page: true });

  const findPerson = async (sub: string) => {
    const principal = await directory.findPrincipal(sub);
    return principal?.kind === 'human' ? principal : null;
  };

  fastify.post('/authorize/passkey', { config, schema: { body: PasskeyBody } }, async (request, reply) => {
    const { interaction: form, credential } = request.body;
    const resumed = await forms.resumeSignIn(request, reply, form, (signInRequest, renewed) =>
      signInPages.signIn(signInRequest, { ...renewed, handle: '' }),
    );
    if (!resumed) return reply;
    const { signInRequest } = resumed;
    // A challenge is used once, so that the next attempt needs another one.
    const next = { token: beginForm(services, request, reply, signInRequest), handle: '' };
    pages.keepForm(request, signInPages.signIn(signInRequest, next));
    const principal = await passkeys.verify(
      { form, credential, purpose: nameOf(signInRequest) },
      findPerson,
      requestSource(request),
    );
    if (principal) return forms.acceptPasskey(request, reply, signInRequest, principal);
    const problems = [message('sign-in.passkey-wrong')];
    return pages.send(reply.code(401), signInPages.signIn(signInRequest, { ...next, problems }));
  });
}

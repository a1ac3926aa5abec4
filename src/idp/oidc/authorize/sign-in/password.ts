import { message } from '../../../../core/http/messages.js';
import { access, type FastifyTypebox } from '../../../../core/http/routes.js';
import { LoginBody } from '../../schemas.js';
import { nameOf } from '../pages.js';
import { checkCredentials } from './credentials.js';
import type { SignInServices } from './forms.js';

/** The form for user name and password. */
export async function passwordPlugin(fastify: FastifyTypebox, services: SignInServices): Promise<void> {
  const { forms, signInPages, pages } = services;
  const config = access('public', { page: true });

  fastify.post('/authorize/login', { config, schema: { body: LoginBody } }, async (request, reply) => {
    const { interaction: token, handle, password } = request.body;
    const resumed = await forms.resumeSignIn(request, reply, token, (signInRequest, renewed) =>
      signInPages.signIn(signInRequest, { ...renewed, handle }),
    );
    if (!resumed) return reply;
    const { signInRequest } = resumed;
    pages.keepForm(request, signInPages.signIn(signInRequest, { token, handle }));
    // Handles contain no spaces, but keyboards with autocompletion append one.
    const credentials = { username: handle.trim(), password };
    // Agents are rejected like a wrong password, so that stolen agent credentials cannot start a browser session.
    const principal = await checkCredentials(
      services,
      request,
      credentials,
      ({ kind }) => kind === 'human',
      nameOf(signInRequest),
    );
    if (principal) return forms.acceptPassword(request, reply, signInRequest, principal);
    const form = signInPages.signIn(signInRequest, { token, handle, problems: WRONG, wrong: true });
    return pages.send(reply.code(401), form);
  });
}

const WRONG = [message('sign-in.wrong')];

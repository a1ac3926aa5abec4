import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Cookies } from '../sessions.js';
import type { Interaction } from './interaction-token.js';
import type { SignInRequest } from './pages.js';
import type { Authorization, ConsentBinding } from './service.js';

/**
 * Begins a form in this browser, which gets a cookie if it has none, and returns its token.
 *
 * @param bound what the form of a consent page is bound to, or the principal whose password was given
 */
export function beginForm(
  { authorization, cookies }: { authorization: Authorization; cookies: Cookies },
  request: FastifyRequest,
  reply: FastifyReply,
  signInRequest: SignInRequest,
  bound?: ConsentBinding | Pick<Interaction, 'proven'>,
): string {
  const present = cookies.form.read(request);
  const { token, cookie } = authorization.beginForm(signInRequest, present, bound);
  if (cookie !== present) cookies.form.set(reply, cookie);
  return token;
}

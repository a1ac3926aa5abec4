import type { Messages } from '../../../core/http/messages.js';
import { access, type FastifyTypebox, requestSource } from '../../../core/http/routes.js';
import { ok } from '../../../core/http/schemas.js';
import { SECOND } from '../../../core/kernel/clock.js';
import { BODY_LIMIT, EmailBody, LoginCodeBody, LoginTokenAnswer, SignInAnswer } from '../schemas.js';
import type { EmailLogin } from './email-login.js';
import { LOGIN_CODE_TTL_MS } from './login-codes.js';

export interface EmailLoginPluginOptions {
  emailLogin: EmailLogin;
  messages: Messages;
}

/** Sign-in with a mailed code. No GET uses a code, because mail scanners open every link. */
export async function emailLoginPlugin(
  fastify: FastifyTypebox,
  { emailLogin, messages }: EmailLoginPluginOptions,
): Promise<void> {
  const route = { config: access('public'), bodyLimit: BODY_LIMIT };

  fastify.post(
    '/auth/email-login',
    { ...route, schema: { body: EmailBody, response: { 202: LoginTokenAnswer } } },
    async (request, reply) => {
      const given = { ...request.body, locale: messages.negotiate(request) };
      const loginToken = await emailLogin.requestCode(given, requestSource(request));
      return reply.code(202).send(ok({ loginToken, expiresIn: LOGIN_CODE_TTL_MS / SECOND }));
    },
  );

  fastify.post(
    '/auth/email-login/redeem',
    { ...route, schema: { body: LoginCodeBody, response: { 200: SignInAnswer } } },
    async (request) => {
      const given = { ...request.body, locale: messages.negotiate(request) };
      return ok(await emailLogin.redeem(given, requestSource(request)));
    },
  );
}

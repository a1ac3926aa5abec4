import { Acknowledgement } from '../../http/schemas.js';
import { access, originOf, type Scope } from '../../http/scope.js';
import { DeletionBody, EmailChangeBody, PasswordBody } from '../schemas.js';
import type { AuthService } from '../service.js';
import { BODY_LIMIT } from './limits.js';

export interface AccountPluginOptions {
  auth: AuthService;
}

/** The payment provider has ten seconds for each thing that is asked of it. Milliseconds. */
const PROVIDER_TIMEOUT = 30_000;

/** What owners do with their account. */
export async function accountPlugin(scope: Scope, { auth }: AccountPluginOptions): Promise<void> {
  const change = { config: access('user'), bodyLimit: BODY_LIMIT };

  scope.post(
    '/user/password',
    { ...change, schema: { body: PasswordBody, response: { 200: Acknowledgement } } },
    async (request) => {
      await auth.changePassword(request.saas, request.body, originOf(request));
      return {
        success: true,
        message: 'The password is changed, and all other sessions have ended.',
      } as const;
    },
  );

  scope.post(
    '/user/email',
    { ...change, schema: { body: EmailChangeBody, response: { 202: Acknowledgement } } },
    async (request, reply) => {
      await auth.changeEmail(request.saas, request.body, originOf(request));
      const message = 'Follow the link that was sent to the new address. Until then the old one holds.';
      return reply.code(202).send({ success: true, message });
    },
  );

  scope.post(
    '/user/delete',
    {
      ...change,
      handlerTimeout: PROVIDER_TIMEOUT,
      schema: { body: DeletionBody, response: { 200: Acknowledgement } },
    },
    async (request) => {
      await auth.deleteAccount(request.saas, request.body.password, originOf(request));
      return { success: true, message: 'The account is deleted.' } as const;
    },
  );
}

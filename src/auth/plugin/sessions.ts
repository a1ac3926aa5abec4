import { Acknowledgement, ok } from '../../http/schemas.js';
import { access, originOf, type Scope } from '../../http/scope.js';
import {
  LoginBody,
  LogoutBody,
  MeAnswer,
  RefreshBody,
  RegisterBody,
  SessionParams,
  SessionsAnswer,
  SignInAnswer,
  TokensAnswer,
} from '../schemas.js';
import type { AuthService } from '../service.js';
import { BODY_LIMIT } from './limits.js';

/** Routes that begin, continue and end sessions. */
export async function sessionsPlugin(scope: Scope, { auth }: { auth: AuthService }): Promise<void> {
  scope.post(
    '/auth/register',
    {
      config: access('public'),
      bodyLimit: BODY_LIMIT,
      schema: { body: RegisterBody, response: { 201: SignInAnswer, 202: Acknowledgement } },
    },
    async (request, reply) => {
      const signedIn = await auth.register(request.body, originOf(request));
      if (signedIn) return reply.code(201).send(ok(signedIn));
      return reply
        .code(202)
        .send({ success: true, message: 'Follow the link that was sent to the address.' });
    },
  );

  scope.post(
    '/auth/login',
    {
      config: access('public'),
      bodyLimit: BODY_LIMIT,
      schema: { body: LoginBody, response: { 200: SignInAnswer } },
    },
    async (request) => ok(await auth.login(request.body, originOf(request))),
  );

  scope.post(
    '/auth/refresh',
    {
      config: access('public', { duringMaintenance: true }),
      bodyLimit: BODY_LIMIT,
      schema: { body: RefreshBody, response: { 200: TokensAnswer } },
    },
    async (request) => ok(await auth.refresh(request.body.refreshToken, originOf(request))),
  );

  scope.get(
    '/auth/me',
    { config: access('user'), schema: { response: { 200: MeAnswer } } },
    async (request) => ok(request.saas),
  );

  // Public, because either token will do, and one that has ended already is no error.
  scope.post(
    '/auth/logout',
    {
      config: access('public', { duringMaintenance: true }),
      bodyLimit: BODY_LIMIT,
      schema: { body: LogoutBody, response: { 200: Acknowledgement } },
    },
    async (request) => {
      const { authorization } = request.headers;
      await auth.logout({ ...request.body, ...(authorization && { authorization }) }, originOf(request));
      return { success: true } as const;
    },
  );

  scope.get(
    '/auth/sessions',
    { config: access('user'), schema: { response: { 200: SessionsAnswer } } },
    async (request) => ok({ sessions: await auth.listSessions(request.saas) }),
  );

  scope.delete(
    '/auth/sessions/:id',
    { config: access('user'), schema: { params: SessionParams, response: { 200: Acknowledgement } } },
    async (request) => {
      await auth.revokeSession(request.saas, request.params.id, originOf(request));
      return { success: true } as const;
    },
  );
}

import type { FastifyRequest } from 'fastify';
import type { TObject } from 'typebox';
import { type Identity, personOf } from '../../core/http/identity.js';
import type { Messages } from '../../core/http/messages.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { Acknowledgement, ok, type Session, type User } from '../../core/http/schemas.js';
import { rejectUnknownFields } from '../../core/http/unknown-fields.js';
import { SECOND } from '../../core/kernel/clock.js';
import type { SecondFactors } from './dependencies.js';
import { type LinkPagesOptions, linkPagesPlugin } from './links/link-pages.js';
import {
  AccessTokenAnswer,
  BODY_LIMIT,
  DeletionBody,
  EmailBody,
  EmailChangeBody,
  ImpersonationBody,
  LoginBody,
  LoginCodeBody,
  LoginTokenAnswer,
  LogoutBody,
  MeAnswer,
  PasswordBody,
  PlainLoginCodeBody,
  PlainRegisterBody,
  ReauthenticationAnswer,
  ReauthenticationBody,
  RefreshBody,
  RegisterBody,
  SessionParams,
  SessionsAnswer,
  SignInAnswer,
  sessionAnswer,
  TokensAnswer,
} from './schemas.js';
import type { AuthService } from './service.js';
import type { EmailLogin } from './sign-in/email-login.js';
import { LOGIN_CODE_TTL_MS } from './sign-in/login-codes.js';
import { secondFactorPlugin } from './sign-in/second-factor-plugin.js';
import { exportPlugin, type SendExport } from './users/export.js';

export interface AuthPluginOptions extends LinkPagesOptions {
  sendExport: SendExport;
  auth: AuthService;
  /** Chooses the language of a new user. */
  messages: Messages;
  /** Absent if no encryption key is configured. */
  secondFactors?: SecondFactors | undefined;
  /** The token in the session cookie of a request that asks for its use. @throws ORIGIN_NOT_ALLOWED, VALIDATION_ERROR */
  cookieIn(request: FastifyRequest): string | undefined;
  describeSession: DescribeSession;
  /** Whether the host has declared fields of users. */
  hasUserFields: boolean;
}

/** A session with the organization that is active in it, as far as the user is a member of it, and the features of the plans. */
export interface DescribeSession {
  (
    identity: Identity,
  ): Promise<{
    user: User;
    session: Session;
    organization: Record<string, unknown> | null;
    features: string[];
  }>;
  /** Of the organization. */
  schema: TObject;
}

/** The routes of accounts: sessions, mailed links, account management and the export. */
export async function authPlugin(fastify: FastifyTypebox, options: AuthPluginOptions): Promise<void> {
  await sessionRoutes(fastify, options);
  await fastify.register(linkPagesPlugin, options);
  await accountRoutes(fastify, options);
  await fastify.register(exportPlugin, options);
  const { auth, secondFactors } = options;
  const step = auth.secondFactorStep;
  if (step && secondFactors) await fastify.register(secondFactorPlugin, { auth, step, secondFactors });
  if (auth.emailLogin) await mailedCodeRoutes(fastify, auth.emailLogin, options);
}

/** Routes that start, refresh, list and end sessions. */
async function sessionRoutes(fastify: FastifyTypebox, options: AuthPluginOptions): Promise<void> {
  const { auth, messages, hasUserFields } = options;
  const NewAccount = hasUserFields ? RegisterBody : PlainRegisterBody;
  const open = { config: access('public'), bodyLimit: BODY_LIMIT };
  const duringMaintenance = {
    config: access('public', { duringMaintenance: true }),
    bodyLimit: BODY_LIMIT,
  };
  fastify.post(
    '/auth/register',
    {
      ...open,
      preValidation: rejectUnknownFields(NewAccount, 'is not a field of a registration'),
      schema: { body: NewAccount, response: { 201: SignInAnswer, 202: Acknowledgement } },
    },
    async (request, reply) => {
      const input = { ...request.body, locale: messages.negotiate(request) };
      const signedIn = await auth.register(input, requestSource(request));
      if (signedIn) return reply.code(201).send(ok(signedIn));
      return reply
        .code(202)
        .send({ success: true, message: 'Follow the link in the e-mail that was sent to this address.' });
    },
  );

  // With `Session-Mode: cookie`, browser-sessions.ts moves the refresh token into a cookie, as on every route that issues one.
  fastify.post(
    '/auth/login',
    { ...open, schema: { body: LoginBody, response: { 200: SignInAnswer } } },
    async (request) => ok(await auth.login(request.body, requestSource(request))),
  );

  fastify.post(
    '/auth/refresh',
    { ...duringMaintenance, schema: { body: RefreshBody, response: { 200: TokensAnswer } } },
    async (request) => ok(await auth.refresh(request.body.refreshToken, requestSource(request))),
  );

  const { cookieIn, describeSession } = options;
  fastify.get(
    '/auth/session',
    { ...duringMaintenance, schema: { response: { 200: sessionAnswer(describeSession.schema) } } },
    async (request) => {
      const cookie = cookieIn(request);
      const found = await auth.readSession({ authorization: request.headers.authorization, cookie });
      return ok({ session: found && (await describeSession(found)) });
    },
  );

  fastify.post(
    '/auth/session/token',
    { ...duringMaintenance, schema: { response: { 200: AccessTokenAnswer } } },
    async (request) => ok(await auth.issueForCookie(cookieIn(request))),
  );

  fastify.get(
    '/auth/me',
    {
      config: access('user', { agentScope: 'profile:read' }),
      schema: { response: { 200: MeAnswer } },
    },
    async (request) => ok(request.saas),
  );

  fastify.post(
    '/auth/reauthenticate',
    {
      config: access('user'),
      bodyLimit: BODY_LIMIT,
      schema: { body: ReauthenticationBody, response: { 200: ReauthenticationAnswer } },
    },
    async (request) =>
      ok(await auth.reauthenticate(personOf(request.saas), request.body, requestSource(request))),
  );

  // Public, because a refresh token alone is sufficient and an ended session is not an error.
  fastify.post(
    '/auth/logout',
    { ...duringMaintenance, schema: { body: LogoutBody, response: { 200: Acknowledgement } } },
    async (request) => {
      const { authorization } = request.headers;
      await auth.logout({ ...request.body, ...(authorization && { authorization }) }, requestSource(request));
      return { success: true } as const;
    },
  );

  const { impersonation } = auth;
  if (impersonation) {
    const schema = { body: ImpersonationBody, response: { 200: ReauthenticationAnswer } };
    fastify.post('/auth/impersonation', { ...open, config: access('recent-user'), schema }, async (request) =>
      ok(await impersonation.start(personOf(request.saas), request.body, requestSource(request))),
    );
  }

  fastify.get(
    '/auth/sessions',
    { config: access('user'), schema: { response: { 200: SessionsAnswer } } },
    async (request) => ok({ sessions: await auth.listSessions(personOf(request.saas)) }),
  );

  fastify.delete(
    '/auth/sessions/:id',
    { config: access('user'), schema: { params: SessionParams, response: { 200: Acknowledgement } } },
    async (request) => {
      const { ip } = requestSource(request);
      await auth.revokeSession(personOf(request.saas).user.id, request.params.id, { ip });
      return { success: true } as const;
    },
  );
}

/** Sign-in with a mailed code. No GET uses a code, because mail scanners open every link. */
async function mailedCodeRoutes(
  fastify: FastifyTypebox,
  emailLogin: EmailLogin,
  { messages, hasUserFields }: AuthPluginOptions,
): Promise<void> {
  const body = hasUserFields ? LoginCodeBody : PlainLoginCodeBody;
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
    { ...route, schema: { body, response: { 200: SignInAnswer } } },
    async (request) => {
      const given = { ...request.body, locale: messages.negotiate(request) };
      return ok(await emailLogin.redeem(given, requestSource(request)));
    },
  );
}

/** Deletion cancels subscriptions first, and each request to the payment provider may take ten seconds. */
const DELETION_TIMEOUT_MS = 30_000;

/** Routes that change and delete the caller's account. */
async function accountRoutes(fastify: FastifyTypebox, { auth }: AuthPluginOptions): Promise<void> {
  const change = { config: access('user'), bodyLimit: BODY_LIMIT };

  fastify.post(
    '/user/password',
    { ...change, schema: { body: PasswordBody, response: { 200: Acknowledgement } } },
    async (request) => {
      await auth.changePassword(personOf(request.saas), request.body, requestSource(request));
      return {
        success: true,
        message: 'The password has been changed and all other sessions have been revoked.',
      } as const;
    },
  );

  fastify.post(
    '/user/email',
    {
      ...change,
      config: access('user', { changesFactors: true }),
      schema: { body: EmailChangeBody, response: { 202: Acknowledgement } },
    },
    async (request, reply) => {
      await auth.changeEmail(personOf(request.saas), request.body, requestSource(request));
      const message =
        'Follow the link in the e-mail that was sent to the new address. Until then, the current address remains valid.';
      return reply.code(202).send({ success: true, message });
    },
  );

  fastify.post(
    '/user/delete',
    {
      ...change,
      config: access('user', { changesFactors: true }),
      handlerTimeout: DELETION_TIMEOUT_MS,
      schema: { body: DeletionBody, response: { 200: Acknowledgement } },
    },
    async (request) => {
      await auth.deleteAccount(personOf(request.saas), request.body.password, requestSource(request));
      return { success: true, message: 'The account has been deleted.' } as const;
    },
  );
}

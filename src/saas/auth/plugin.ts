import { personOf } from '../../core/http/identity.js';
import type { Messages } from '../../core/http/messages.js';
import { Acknowledgement, ok } from '../../core/http/schemas.js';
import { access, originOf, type Scope } from '../../core/http/scope.js';
import { rejectUnknownFields } from '../../core/http/unknown-fields.js';
import { type LinkPagesOptions, linkPagesPlugin } from './links/link-pages.js';
import {
  BODY_LIMIT,
  DeletionBody,
  EmailChangeBody,
  LoginBody,
  LogoutBody,
  meAnswer,
  PasswordBody,
  ReauthenticationAnswer,
  ReauthenticationBody,
  RefreshBody,
  RegisterBody,
  SessionParams,
  SessionsAnswer,
  SignInAnswer,
  TokensAnswer,
} from './schemas.js';
import type { AuthService } from './service.js';
import type { SecondFactors } from './sign-in/second-factor.js';
import { secondFactorPlugin } from './sign-in/second-factor-plugin.js';
import { exportPlugin, type SendExport } from './users/export.js';

export interface AuthPluginOptions extends LinkPagesOptions {
  sendExport: SendExport;
  auth: AuthService;
  /** Chooses the language of a new user. */
  messages: Pick<Messages, 'negotiate'>;
  /** Absent if no encryption key is configured. */
  secondFactors?: SecondFactors | undefined;
  /** Whether agents read the account of a user. */
  admitsAgents: boolean;
}

/** The routes of accounts: sessions, mailed links, account management and the export. */
export async function authPlugin(scope: Scope, options: AuthPluginOptions): Promise<void> {
  await sessionRoutes(scope, options);
  await scope.register(linkPagesPlugin, options);
  await accountRoutes(scope, options);
  await scope.register(exportPlugin, options);
  const { auth, secondFactors } = options;
  const step = auth.secondFactorStep;
  if (step && secondFactors) await scope.register(secondFactorPlugin, { auth, step, secondFactors });
}

/** Routes that start, refresh, list and end sessions. */
async function sessionRoutes(
  scope: Scope,
  { auth, messages, admitsAgents }: Pick<AuthPluginOptions, 'auth' | 'messages' | 'admitsAgents'>,
): Promise<void> {
  scope.post(
    '/auth/register',
    {
      config: access('public'),
      bodyLimit: BODY_LIMIT,
      preValidation: rejectUnknownFields(RegisterBody, 'is not a field of a registration'),
      schema: { body: RegisterBody, response: { 201: SignInAnswer, 202: Acknowledgement } },
    },
    async (request, reply) => {
      const input = { ...request.body, locale: messages.negotiate(request) };
      const signedIn = await auth.register(input, originOf(request));
      if (signedIn) return reply.code(201).send(ok(signedIn));
      return reply
        .code(202)
        .send({ success: true, message: 'Follow the link in the e-mail that was sent to this address.' });
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
    {
      config: access('user', { agentScope: 'profile:read' }),
      schema: { response: { 200: meAnswer(admitsAgents) } },
    },
    async (request) => ok(request.saas),
  );

  scope.post(
    '/auth/reauthenticate',
    {
      config: access('user'),
      bodyLimit: BODY_LIMIT,
      schema: { body: ReauthenticationBody, response: { 200: ReauthenticationAnswer } },
    },
    async (request) => ok(await auth.reauthenticate(personOf(request.saas), request.body, originOf(request))),
  );

  // Public, because a refresh token alone is sufficient and an ended session is not an error.
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
    async (request) => ok({ sessions: await auth.listSessions(personOf(request.saas)) }),
  );

  scope.delete(
    '/auth/sessions/:id',
    { config: access('user'), schema: { params: SessionParams, response: { 200: Acknowledgement } } },
    async (request) => {
      await auth.revokeSession(personOf(request.saas), request.params.id, originOf(request));
      return { success: true } as const;
    },
  );
}

/** Deletion cancels subscriptions first, and each request to the payment provider may take ten seconds. */
const DELETION_TIMEOUT_MS = 30_000;

/** Routes that change and delete the caller's account. */
async function accountRoutes(scope: Scope, { auth }: Pick<AuthPluginOptions, 'auth'>): Promise<void> {
  const change = { config: access('user'), bodyLimit: BODY_LIMIT };

  scope.post(
    '/user/password',
    { ...change, schema: { body: PasswordBody, response: { 200: Acknowledgement } } },
    async (request) => {
      await auth.changePassword(personOf(request.saas), request.body, originOf(request));
      return {
        success: true,
        message: 'The password has been changed and all other sessions have been revoked.',
      } as const;
    },
  );

  scope.post(
    '/user/email',
    { ...change, schema: { body: EmailChangeBody, response: { 202: Acknowledgement } } },
    async (request, reply) => {
      await auth.changeEmail(personOf(request.saas), request.body, originOf(request));
      const message =
        'Follow the link in the e-mail that was sent to the new address. Until then, the current address remains valid.';
      return reply.code(202).send({ success: true, message });
    },
  );

  scope.post(
    '/user/delete',
    {
      ...change,
      handlerTimeout: DELETION_TIMEOUT_MS,
      schema: { body: DeletionBody, response: { 200: Acknowledgement } },
    },
    async (request) => {
      await auth.deleteAccount(personOf(request.saas), request.body.password, originOf(request));
      return { success: true, message: 'The account has been deleted.' } as const;
    },
  );
}

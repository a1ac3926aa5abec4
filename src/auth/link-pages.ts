import formbody from '@fastify/formbody';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { isForm, type Pages } from '../http/pages.js';
import { Acknowledgement } from '../http/schemas.js';
import { access, originOf, type Scope } from '../http/scope.js';
import { AppError } from '../kernel/errors.js';
import { BODY_LIMIT, EmailBody, LinkQuery, ResetBody, VerifyBody } from './schemas.js';
import type { AuthService } from './service.js';

export interface LinkPagesOptions {
  auth: AuthService;
  pages: Pages;
  /** The address of the application, linked from the page that confirms success. */
  home(): string;
}

/**
 * Requests and redeems mailed links. A GET shows a page without reading the token, because mail scanners open every
 * link. The page posts a form to the same path, which responds with a page to forms and with JSON to applications.
 */
export async function linkPagesPlugin(scope: Scope, options: LinkPagesOptions): Promise<void> {
  const { auth } = options;
  scope.post(
    '/auth/forgot-password',
    {
      config: access('public'),
      bodyLimit: BODY_LIMIT,
      schema: { body: EmailBody, response: { 200: Acknowledgement } },
    },
    async (request) => {
      await auth.forgotPassword(request.body.email, originOf(request));
      const message =
        'If an account with this address exists, an e-mail with a password reset link has been sent.';
      return { success: true, message } as const;
    },
  );

  scope.post(
    '/auth/resend-verification',
    {
      config: access('public'),
      bodyLimit: BODY_LIMIT,
      schema: { body: EmailBody, response: { 200: Acknowledgement } },
    },
    async (request) => {
      await auth.resendVerification(request.body.email, originOf(request));
      const message = 'If this address needs to be confirmed, an e-mail with a new link has been sent.';
      return { success: true, message } as const;
    },
  );

  // Only this scope parses forms, because other sites can submit forms without a CORS preflight.
  await scope.register(async (pages: Scope) => {
    await pages.register(formbody, { bodyLimit: BODY_LIMIT });
    await pages.register(resetPages, options);
    await pages.register(verifyPages, options);
    await pages.register(unlockPages, options);
  });
}

const PAGE = access('public', { page: true });

async function resetPages(scope: Scope, { auth, pages, home }: LinkPagesOptions): Promise<void> {
  const showForm = (reply: FastifyReply, form: { token: string; problems?: string[] }) =>
    pages.send(reply, 'reset-password', { title: 'Choose a new password', ...form });

  scope.get('/auth/reset-password', { config: PAGE, schema: { querystring: LinkQuery } }, (request, reply) =>
    showForm(reply, request.query),
  );

  scope.post(
    '/auth/reset-password',
    { config: PAGE, bodyLimit: BODY_LIMIT, schema: { body: ResetBody, response: { 200: Acknowledgement } } },
    async (request, reply) => {
      try {
        await auth.resetPassword(request.body, originOf(request));
      } catch (error) {
        const { statusCode, problems } = passwordProblems(error, request);
        const answer: FastifyReply = reply;
        return showForm(answer.code(statusCode), { token: request.body.token, problems });
      }
      return sendSuccess(
        { pages, home },
        request,
        reply,
        'Your password has been changed. Sign in with the new password.',
      );
    },
  );
}

/** The errors of a rejected password, after which the form is shown again. */
const PASSWORD_ERROR_CODES = ['VALIDATION_ERROR', 'WEAK_PASSWORD'];

/** Returns the messages of the form for a rejected password. @throws the given error if it has another cause */
function passwordProblems(
  error: unknown,
  request: FastifyRequest,
): { statusCode: number; problems: string[] } {
  const isPasswordError = error instanceof AppError && PASSWORD_ERROR_CODES.includes(error.code);
  if (!isPasswordError || !isForm(request)) throw error;
  const problems = error.details?.map(({ message }) => `The password ${message}.`) ?? [error.message];
  return { statusCode: error.statusCode, problems };
}

async function verifyPages(scope: Scope, { auth, pages, home }: LinkPagesOptions): Promise<void> {
  const showForm = (reply: FastifyReply, form: { token: string; problems?: string[] }) =>
    pages.send(reply, 'verify-email', { title: 'Confirm your address', ...form });

  scope.get('/auth/verify-email', { config: PAGE, schema: { querystring: LinkQuery } }, (request, reply) =>
    showForm(reply, request.query),
  );

  scope.post(
    '/auth/verify-email',
    { config: PAGE, bodyLimit: BODY_LIMIT, schema: { body: VerifyBody, response: { 200: Acknowledgement } } },
    async (request, reply) => {
      const { authorization } = request.headers;
      const given = { ...request.body, ...(authorization !== undefined && { authorization }) };
      try {
        const { passwordChanged } = await auth.verifyEmail(given, originOf(request));
        const message = passwordChanged
          ? 'Your address has been confirmed and your password has been changed. Sign in with the new password.'
          : 'Your address has been confirmed.';
        return sendSuccess({ pages, home }, request, reply, message);
      } catch (error) {
        const { statusCode, problems } = passwordProblems(error, request);
        const answer: FastifyReply = reply;
        return showForm(answer.code(statusCode), { token: request.body.token, problems });
      }
    },
  );
}

async function unlockPages(scope: Scope, { auth, pages, home }: LinkPagesOptions): Promise<void> {
  scope.get('/auth/unlock', { config: PAGE, schema: { querystring: LinkQuery } }, (request, reply) =>
    pages.send(reply, 'unlock', { title: 'Allow sign-in from this device', ...request.query }),
  );

  scope.post(
    '/auth/unlock',
    { config: PAGE, bodyLimit: BODY_LIMIT, schema: { body: VerifyBody, response: { 200: Acknowledgement } } },
    async (request, reply) => {
      await auth.unlock(request.body.token, originOf(request));
      return sendSuccess({ pages, home }, request, reply, 'You can now sign in from this device.');
    },
  );
}

/** Responds with a page to forms and with JSON to applications. */
function sendSuccess(
  { pages, home }: Pick<LinkPagesOptions, 'pages' | 'home'>,
  request: FastifyRequest,
  reply: FastifyReply,
  message: string,
): FastifyReply {
  return isForm(request)
    ? pages.send(reply, 'done', { title: message, home: home() })
    : reply.send({ success: true, message });
}

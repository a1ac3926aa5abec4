import formbody from '@fastify/formbody';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Localized, message } from '../../../core/http/messages.js';
import { isForm, type Page, type Pages } from '../../../core/http/pages.js';
import { access, type FastifyTypebox, requestSource } from '../../../core/http/routes.js';
import { Acknowledgement } from '../../../core/http/schemas.js';
import { AppError } from '../../../core/kernel/errors.js';
import { passwordSentences } from '../../../core/passwords/problems.js';
import { BODY_LIMIT, EmailBody, LinkQuery, ResetBody, VerifyBody } from '../schemas.js';
import type { AuthService } from '../service.js';

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
export async function linkPagesPlugin(fastify: FastifyTypebox, options: LinkPagesOptions): Promise<void> {
  const { auth } = options;
  fastify.post(
    '/auth/forgot-password',
    {
      config: access('public'),
      bodyLimit: BODY_LIMIT,
      schema: { body: EmailBody, response: { 200: Acknowledgement } },
    },
    async (request) => {
      await auth.forgotPassword(request.body.email, requestSource(request));
      const message =
        'If an account with this address exists, an e-mail with a password reset link has been sent.';
      return { success: true, message } as const;
    },
  );

  fastify.post(
    '/auth/resend-verification',
    {
      config: access('public'),
      bodyLimit: BODY_LIMIT,
      schema: { body: EmailBody, response: { 200: Acknowledgement } },
    },
    async (request) => {
      await auth.resendVerification(request.body.email, requestSource(request));
      const message = 'If this address needs to be confirmed, an e-mail with a new link has been sent.';
      return { success: true, message } as const;
    },
  );

  // Only this context parses forms, because other sites can submit forms without a CORS preflight.
  await fastify.register(async (pages: FastifyTypebox) => {
    await pages.register(formbody, { bodyLimit: BODY_LIMIT });
    await pages.register(resetPages, options);
    await pages.register(verifyPages, options);
    await pages.register(unlockPages, options);
  });
}

const PAGE = access('public', { page: true });

/** The form behind a link, with the problems of its field. */
const formOf = (
  template: string,
  { token }: { token: string },
  failure: { problems?: Localized[]; wrong?: true } = {},
): Page => ({ template, view: { token, ...failure } });

async function resetPages(fastify: FastifyTypebox, options: LinkPagesOptions): Promise<void> {
  const { auth, pages } = options;

  fastify.get(
    '/auth/reset-password',
    { config: PAGE, schema: { querystring: LinkQuery } },
    (request, reply) => pages.send(reply, formOf('reset-password', request.query)),
  );

  fastify.post(
    '/auth/reset-password',
    { config: PAGE, bodyLimit: BODY_LIMIT, schema: { body: ResetBody, response: { 200: Acknowledgement } } },
    async (request, reply) => {
      pages.keepForm(request, formOf('reset-password', request.body));
      try {
        await auth.resetPassword(request.body, requestSource(request));
      } catch (error) {
        const { statusCode, problems } = passwordProblems(error, request);
        const answer: FastifyReply = reply;
        const form = formOf('reset-password', request.body, { problems, wrong: true });
        return pages.send(answer.code(statusCode), form);
      }
      return sendSuccess(options, request, reply, 'reset-password.done');
    },
  );
}

/** The errors of a rejected password, after which the form is shown again. */
const PASSWORD_ERROR_CODES = ['VALIDATION_ERROR', 'WEAK_PASSWORD'];

/** Returns the messages of the form for a rejected password. @throws the given error if it has another cause */
function passwordProblems(
  error: unknown,
  request: FastifyRequest,
): { statusCode: number; problems: Localized[] } {
  const isPasswordError = error instanceof AppError && PASSWORD_ERROR_CODES.includes(error.code);
  if (!isPasswordError || !isForm(request)) throw error;
  return { statusCode: error.statusCode, problems: passwordSentences(error) };
}

async function verifyPages(fastify: FastifyTypebox, options: LinkPagesOptions): Promise<void> {
  const { auth, pages } = options;

  fastify.get('/auth/verify-email', { config: PAGE, schema: { querystring: LinkQuery } }, (request, reply) =>
    pages.send(reply, formOf('verify-email', request.query)),
  );

  fastify.post(
    '/auth/verify-email',
    { config: PAGE, bodyLimit: BODY_LIMIT, schema: { body: VerifyBody, response: { 200: Acknowledgement } } },
    async (request, reply) => {
      const { authorization } = request.headers;
      const given = { ...request.body, ...(authorization !== undefined && { authorization }) };
      pages.keepForm(request, formOf('verify-email', request.body));
      try {
        const { passwordChanged } = await auth.verifyEmail(given, requestSource(request));
        const sentence = passwordChanged ? 'verify-email.done-changed' : 'verify-email.done';
        return sendSuccess(options, request, reply, sentence);
      } catch (error) {
        const { statusCode, problems } = passwordProblems(error, request);
        const answer: FastifyReply = reply;
        const form = formOf('verify-email', request.body, { problems, wrong: true });
        return pages.send(answer.code(statusCode), form);
      }
    },
  );
}

async function unlockPages(fastify: FastifyTypebox, options: LinkPagesOptions): Promise<void> {
  const { auth, pages } = options;

  fastify.get('/auth/unlock', { config: PAGE, schema: { querystring: LinkQuery } }, (request, reply) =>
    pages.send(reply, formOf('unlock', request.query)),
  );

  fastify.post(
    '/auth/unlock',
    { config: PAGE, bodyLimit: BODY_LIMIT, schema: { body: VerifyBody, response: { 200: Acknowledgement } } },
    async (request, reply) => {
      pages.keepForm(request, formOf('unlock', request.body));
      await auth.unlock(request.body.token, requestSource(request));
      return sendSuccess(options, request, reply, 'unlock.done');
    },
  );
}

/** Sentences of the message catalogue, as applications get them. */
const DONE = {
  'reset-password.done': 'Your password has been changed. Sign in with the new password.',
  'verify-email.done': 'Your address has been confirmed.',
  'verify-email.done-changed':
    'Your address has been confirmed and your password has been changed. Sign in with the new password.',
  'unlock.done': 'You can now sign in from this device.',
} as const;

/** Responds with a page to forms and with JSON to applications. */
function sendSuccess(
  { pages, home }: LinkPagesOptions,
  request: FastifyRequest,
  reply: FastifyReply,
  sentence: keyof typeof DONE,
): FastifyReply {
  return isForm(request)
    ? pages.send(reply, { template: 'done', view: { title: message(sentence), home: home() } })
    : reply.send({ success: true, message: DONE[sentence] });
}

import formbody from '@fastify/formbody';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Static } from 'typebox';
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
  const mailRequest = {
    config: access('public'),
    bodyLimit: BODY_LIMIT,
    schema: { body: EmailBody, response: { 200: Acknowledgement } },
  };

  fastify.post('/auth/forgot-password', mailRequest, async (request) => {
    await auth.forgotPassword(request.body.email, requestSource(request));
    const message =
      'If an account with this address exists, an e-mail with a password reset link has been sent.';
    return { success: true, message } as const;
  });

  fastify.post('/auth/resend-verification', mailRequest, async (request) => {
    await auth.resendVerification(request.body.email, requestSource(request));
    const message = 'If this address needs to be confirmed, an e-mail with a new link has been sent.';
    return { success: true, message } as const;
  });

  // Only this context parses forms, because other sites can submit forms without a CORS preflight.
  await fastify.register(async (forms: FastifyTypebox) => {
    await forms.register(formbody, { bodyLimit: BODY_LIMIT });
    registerPage(forms, options, 'reset-password', ResetBody, async (given, request) => {
      await auth.resetPassword(given, requestSource(request));
      return 'reset-password.done';
    });
    registerPage(forms, options, 'verify-email', VerifyBody, async (given, request) => {
      const { authorization } = request.headers;
      const proven = { ...given, ...(authorization !== undefined && { authorization }) };
      const { passwordChanged } = await auth.verifyEmail(proven, requestSource(request));
      return passwordChanged ? 'verify-email.done-changed' : 'verify-email.done';
    });
    registerPage(forms, options, 'unlock', VerifyBody, async ({ token }, request) => {
      await auth.unlock(token, requestSource(request));
      return 'unlock.done';
    });
  });
}

const PAGE = access('public', { page: true });

/** The form behind a link, with the problems of its field. */
const formOf = (
  template: string,
  { token }: { token: string },
  failure: { problems?: Localized[]; wrong?: true } = {},
): Page => ({ template, view: { token, ...failure } });

/** The page behind a link, and the use of the link, which returns the sentence that confirms it. */
function registerPage<Body extends typeof ResetBody | typeof VerifyBody>(
  fastify: FastifyTypebox,
  { pages, home }: LinkPagesOptions,
  template: 'reset-password' | 'verify-email' | 'unlock',
  body: Body,
  use: (given: Static<Body>, request: FastifyRequest) => Promise<keyof typeof DONE>,
): void {
  const url = `/auth/${template}`;
  fastify.get(url, { config: PAGE, schema: { querystring: LinkQuery } }, (request, reply) =>
    pages.send(reply, formOf(template, request.query)),
  );

  const schema = { body, response: { 200: Acknowledgement } };
  fastify.post(url, { config: PAGE, bodyLimit: BODY_LIMIT, schema }, async (request, reply: FastifyReply) => {
    const given = request.body as Static<Body>;
    pages.keepForm(request, formOf(template, given));
    try {
      const sentence = await use(given, request);
      return isForm(request)
        ? pages.send(reply, { template: 'done', view: { title: message(sentence), home: home() } })
        : reply.send({ success: true, message: DONE[sentence] });
    } catch (error) {
      const { statusCode, problems } = passwordProblems(error, request);
      return pages.send(reply.code(statusCode), formOf(template, given, { problems, wrong: true }));
    }
  });
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

/** Sentences of the message catalogue, as applications get them in JSON; forms get a page. */
const DONE = {
  'reset-password.done': 'Your password has been changed. Sign in with the new password.',
  'verify-email.done': 'Your address has been confirmed.',
  'verify-email.done-changed':
    'Your address has been confirmed and your password has been changed. Sign in with the new password.',
  'unlock.done': 'You can now sign in from this device.',
} as const;

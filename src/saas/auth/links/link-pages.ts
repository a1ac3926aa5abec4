import formbody from '@fastify/formbody';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Static } from 'typebox';
import type { Identity } from '../../../core/http/identity.js';
import { type Localized, message } from '../../../core/http/messages.js';
import { isForm, type Page, type Pages } from '../../../core/http/pages.js';
import { access, type FastifyTypebox, requestSource } from '../../../core/http/routes.js';
import { Acknowledgement, type User } from '../../../core/http/schemas.js';
import { AppError } from '../../../core/kernel/errors.js';
import { passwordSentences } from '../../../core/passwords/problems.js';
import { BODY_LIMIT, EmailBody, LinkQuery, ResetBody, VerifyBody } from '../schemas.js';
import type { AuthService } from '../service.js';
import { isLinkOf } from './link-tokens.js';

export interface LinkPagesOptions {
  auth: AuthService;
  pages: Pages;
  /** The address of the application, linked from the page that confirms success. */
  home(): string;
  /** The session of the browser that sends a request; null also for a form of another origin. */
  browserSession(request: FastifyRequest): Promise<Identity | null>;
}

/**
 * Requests and redeems mailed links. A GET shows a page without using the token, because mail scanners open every
 * link. The page posts a form to the same path, which responds with a page to forms and with JSON to applications.
 */
export async function linkPagesPlugin(fastify: FastifyTypebox, options: LinkPagesOptions): Promise<void> {
  const { auth } = options;
  /** The user of the browser, if the link is one of this user. */
  const ownerIn = async (request: FastifyRequest, token: string): Promise<User | null> => {
    const identity = await options.browserSession(request);
    const isOwn = identity && !identity.session.impersonator && isLinkOf(identity.user.id, token);
    return isOwn ? identity.user : null;
  };
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
    const confirming = {
      ...options,
      viewOf: async (request: FastifyRequest, token: string) => ({
        email: (await ownerIn(request, token))?.email,
      }),
    };
    registerPage(forms, confirming, 'verify-email', VerifyBody, async (given, request) => {
      const { authorization } = request.headers;
      const owner = isForm(request) ? await ownerIn(request, given.token) : null;
      const proof = owner ? { signedIn: owner.id } : authorization !== undefined && { authorization };
      const { passwordChanged } = await auth.verifyEmail({ ...given, ...proof }, requestSource(request));
      return passwordChanged ? 'verify-email.done-changed' : 'verify-email.done';
    });
    registerPage(forms, options, 'unlock', VerifyBody, async ({ token }, request) => {
      await auth.unlock(token, requestSource(request));
      return 'unlock.done';
    });
  });
}

const PAGE = access('public', { page: true });

interface LinkPageOptions extends Pick<LinkPagesOptions, 'pages' | 'home'> {
  /** What the form shows beside the token. */
  viewOf?(request: FastifyRequest, token: string): Promise<object>;
}

/** The page behind a link, and the use of the link, which returns the sentence that confirms it. */
function registerPage<Body extends typeof ResetBody | typeof VerifyBody>(
  fastify: FastifyTypebox,
  { pages, home, viewOf = async () => ({}) }: LinkPageOptions,
  template: 'reset-password' | 'verify-email' | 'unlock',
  body: Body,
  use: (given: Static<Body>, request: FastifyRequest) => Promise<keyof typeof DONE>,
): void {
  const url = `/auth/${template}`;
  /** The form, with the problems of its field. */
  const formOf = async (
    request: FastifyRequest,
    { token }: { token: string },
    failure: { problems?: Localized[]; wrong?: true } = {},
  ): Promise<Page> => ({ template, view: { token, ...(await viewOf(request, token)), ...failure } });

  fastify.get(url, { config: PAGE, schema: { querystring: LinkQuery } }, async (request, reply) =>
    pages.send(reply, await formOf(request, request.query)),
  );

  const schema = { body, response: { 200: Acknowledgement } };
  fastify.post(url, { config: PAGE, bodyLimit: BODY_LIMIT, schema }, async (request, reply: FastifyReply) => {
    const given = request.body as Static<Body>;
    if (isForm(request)) pages.keepForm(request, await formOf(request, given));
    try {
      const sentence = await use(given, request);
      return isForm(request)
        ? pages.send(reply, { template: 'done', view: { title: message(sentence), home: home() } })
        : reply.send({ success: true, message: DONE[sentence] });
    } catch (error) {
      const { statusCode, problems } = passwordProblems(error, request);
      return pages.send(reply.code(statusCode), await formOf(request, given, { problems, wrong: true }));
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

import { type Localized, message } from '../../core/http/messages.js';
import type { Page } from '../../core/http/pages.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { Email, matchesSchema } from '../../core/http/schemas.js';
import type { EmailLogin } from '../auth/sign-in/email-login.js';
import type { PageContext } from './context.js';
import { EmailBody, MailedCodeBody, MailedCodeQuery, ReturnQuery } from './schemas.js';
import { rejectionOf, type SignInPages, withReturn } from './sign-in-pages.js';

const CONFIG = access('public', { page: true });

/** Sign-in with a mailed code. No GET uses a code, because mail scanners open every link. */
export async function codePlugin(
  fastify: FastifyTypebox,
  options: PageContext & { emailLogin: EmailLogin; signInPages: SignInPages },
): Promise<void> {
  const { emailLogin, signInPages, pages, messages, path } = options;
  /** The login token, so that the code works in this browser only. */
  const codeCookie = options.cookieOf<{ loginToken: string; returnTo?: string | undefined }>(
    'saas-page-code',
  );

  fastify.get('/sign-in/code', { config: CONFIG, schema: { querystring: ReturnQuery } }, (request, reply) =>
    pages.send(reply, requestPage(request.query.return_to)),
  );

  fastify.post(
    '/sign-in/code',
    { config: CONFIG, schema: { querystring: ReturnQuery, body: EmailBody } },
    async (request, reply) => {
      const { return_to: returnTo } = request.query;
      const email = request.body.email.trim();
      pages.keepForm(request, requestPage(returnTo, { email }));
      if (!matchesSchema(email, Email)) {
        const problems = [message('user-sign-up.email-invalid')];
        return pages.send(reply.code(422), requestPage(returnTo, { email, problems, wrong: true }));
      }
      const locale = messages.negotiate(request);
      const loginToken = await emailLogin.requestCode({ email, locale }, requestSource(request));
      codeCookie.set(reply, { loginToken, returnTo });
      return reply.redirect(`${path()}/sign-in/code/enter`, 303);
    },
  );

  fastify.get(
    '/sign-in/code/enter',
    { config: CONFIG, schema: { querystring: MailedCodeQuery } },
    (request, reply) => {
      const view = { requestHref: `${path()}/sign-in/code` };
      if (!codeCookie.read(request))
        return pages.send(reply.code(400), { template: 'user-code-elsewhere', view });
      return pages.send(reply, codePage({ code: request.query.code }));
    },
  );

  fastify.post(
    '/sign-in/code/enter',
    { config: CONFIG, schema: { body: MailedCodeBody } },
    async (request, reply) => {
      pages.keepForm(request, codePage());
      const { loginToken, returnTo } = codeCookie.read(request) ?? { loginToken: '' };
      const given = { loginToken, code: request.body.code, locale: messages.negotiate(request) };
      const attempt = emailLogin.redeem(given, requestSource(request));
      const rejection = await rejectionOf(attempt);
      if (rejection === 'INVALID_CODE')
        return pages.send(reply.code(401), codePage({ problems: [message('user-code.wrong')] }));
      codeCookie.clear(reply);
      if (rejection === 'CODE_EXPIRED')
        return pages.send(
          reply.code(401),
          requestPage(returnTo, { problems: [message('user-code.expired')] }),
        );
      return signInPages.finish(request, reply, attempt, { returnTo });
    },
  );

  const requestPage = (
    returnTo: string | undefined,
    state: { email?: string; problems?: Localized[]; wrong?: true } = {},
  ): Page => ({
    template: 'user-code-request',
    view: {
      action: withReturn(`${path()}/sign-in/code`, returnTo),
      signInHref: withReturn(`${path()}/sign-in`, returnTo),
      ...state,
    },
  });

  const codePage = (state: { code?: string | undefined; problems?: Localized[] } = {}): Page => ({
    template: 'user-code',
    view: { action: `${path()}/sign-in/code/enter`, requestHref: `${path()}/sign-in/code`, ...state },
  });
}

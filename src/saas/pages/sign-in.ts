import { message } from '../../core/http/messages.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import type { AuthService } from '../auth/service.js';
import type { PageContext } from './context.js';
import { CodeBody, EmptyBody, ReturnQuery, SignInBody, SignInQuery } from './schemas.js';
import { rejectionOf, type SignInPages } from './sign-in-pages.js';

type SignInOptions = PageContext & { signInPages: SignInPages };

const CONFIG = access('public', { page: true });
/** During maintenance, operators sign in: `finish` refuses everybody else. */
const OPEN = access('public', { page: true, duringMaintenance: true });

/** Sign-in with a password and a second factor, and sign-out. */
export async function signInPlugin(fastify: FastifyTypebox, options: SignInOptions): Promise<void> {
  const { accounts, sessions, signInPages, pages, path, destinationOf } = options;

  fastify.get(
    '/sign-in',
    { config: CONFIG, schema: { querystring: SignInQuery } },
    async (request, reply) => {
      const { return_to: returnTo, done } = request.query;
      if (await sessions.find(request, reply)) return reply.redirect(destinationOf(returnTo).href, 303);
      const notice = done === 'signed-out' ? { notice: message('user-sign-in.signed-out') } : {};
      return pages.send(reply, await signInPages.signIn(returnTo, notice));
    },
  );

  fastify.post(
    '/sign-in',
    { config: OPEN, schema: { querystring: ReturnQuery, body: SignInBody } },
    async (request, reply) => {
      const { return_to: returnTo } = request.query;
      // Keyboards with autocompletion append a space.
      const email = request.body.email.trim();
      pages.keepForm(request, await signInPages.signIn(returnTo, { email }));
      const attempt = accounts.login({ email, password: request.body.password }, requestSource(request));
      return signInPages.finish(request, reply, attempt, { returnTo, email });
    },
  );

  if (accounts.secondFactorStep) await secondFactorRoutes(fastify, options, accounts.secondFactorStep);

  fastify.get(
    '/sign-out',
    { config: access('person', { page: true, duringMaintenance: true }) },
    (_request, reply) =>
      pages.send(reply, { template: 'user-sign-out', view: { action: `${path()}/sign-out` } }),
  );

  fastify.post(
    '/sign-out',
    {
      config: access('person', { page: true, whileImpersonated: true, duringMaintenance: true }),
      schema: { body: EmptyBody },
    },
    async (request, reply) => {
      await sessions.end(request, reply);
      return reply.redirect(`${path()}/sign-in?done=signed-out`, 303);
    },
  );
}

/** The steps after the password. The challenge in the form proves it. */
async function secondFactorRoutes(
  fastify: FastifyTypebox,
  { signInPages, pages, destinationOf }: SignInOptions,
  step: NonNullable<AuthService['secondFactorStep']>,
): Promise<void> {
  const route = { config: OPEN, schema: { querystring: ReturnQuery, body: CodeBody } };

  fastify.post('/sign-in/second-factor', route, async (request, reply) => {
    const { return_to: returnTo } = request.query;
    const { interaction: challenge, code } = request.body;
    pages.keepForm(request, signInPages.code(challenge, returnTo));
    const attempt = step.complete({ challenge, code }, requestSource(request));
    if ((await rejectionOf(attempt)) === 'INVALID_CODE') {
      const page = signInPages.code(challenge, returnTo, [message('second-factor.wrong')]);
      return pages.send(reply.code(401), page);
    }
    return signInPages.finish(request, reply, attempt, { returnTo });
  });

  // Operators have a factor: during maintenance, nobody sets one up.
  fastify.post('/sign-in/second-factor/enrol', { ...route, config: CONFIG }, async (request, reply) => {
    const { return_to: returnTo } = request.query;
    const { interaction: challenge, code } = request.body;
    const source = requestSource(request);
    const attempt = step.confirm({ challenge, code }, source);
    if ((await rejectionOf(attempt)) === 'INVALID_CODE') {
      const enrolment = await step.pending(challenge, source);
      const problems = [message('second-factor.wrong')];
      return pages.send(reply.code(401), signInPages.enrolment(challenge, returnTo, { enrolment, problems }));
    }
    return signInPages.finish(request, reply, attempt, { returnTo }, ({ recoveryCodes }) => ({
      template: 'account-recovery-codes',
      view: { codes: recoveryCodes, doneHref: destinationOf(returnTo).href },
    }));
  });
}

import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Localized, message } from '../../core/http/messages.js';
import type { Page } from '../../core/http/pages.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { Closed, Email, matchesSchema, OptionalName } from '../../core/http/schemas.js';
import { AppError } from '../../core/kernel/errors.js';
import { passwordSentences } from '../../core/passwords/problems.js';
import type { SignedIn } from '../auth/sign-in/sign-in.js';
import type { PageContext } from './context.js';
import type { FieldForm } from './fields.js';
import { EmailBody, ReturnQuery, SignUpBody } from './schemas.js';
import { type SignInPages, withReturn } from './sign-in-pages.js';

interface FormState extends Problem {
  returnTo: string | undefined;
  email?: string;
  name?: string;
  /** The values of the fields that the host declares, and those that were refused. */
  fields?: Readonly<Record<string, unknown>>;
  wrongFields?: ReadonlySet<string>;
}

/** The form of a registration, for every way to sign in. */
export type SignUpForm = ReturnType<typeof createSignUpForm>;

export function createSignUpForm(context: PageContext, signInPages: SignInPages, fieldForm: FieldForm) {
  const { passkeys, pages, path, publicUrl, registrationAllowed, destinationOf } = context;

  const page = ({ returnTo, fields, wrongFields, ...state }: FormState): Page => ({
    template: 'user-sign-up',
    view: {
      action: withReturn(`${path()}/sign-up`, returnTo),
      signInHref: withReturn(`${path()}/sign-in`, returnTo),
      ...(passkeys && { passkeyAction: withReturn(`${path()}/sign-up/passkey`, returnTo) }),
      fields: fieldForm.view(fields, wrongFields),
      ...state,
    },
    leadsElsewhere: destinationOf(returnTo).leadsElsewhere,
  });

  const closed = (returnTo: string | undefined): Page => ({
    template: 'sign-up-closed',
    view: {
      issuer: new URL(publicUrl()).host,
      signInHref: withReturn(`${path()}/sign-in`, returnTo),
    },
  });

  /** The form with why a registration was rejected. @throws the error if it has a page of its own */
  const reject = async (reply: FastifyReply, error: unknown, state: FormState): Promise<FastifyReply> => {
    if (!(error instanceof AppError)) throw error;
    if (error.code === 'REGISTRATION_DISABLED') return pages.send(reply.code(403), closed(state.returnTo));
    const wrongFields = fieldForm.problemsIn(error);
    const rejected = wrongFields ? { wrongFields, wrong: {} } : rejectionOf(error);
    if (!rejected) throw error;
    return pages.send(reply.code(error.statusCode), page({ ...state, ...rejected }));
  };

  return {
    page,
    fieldForm,
    reject,

    /** The form with what is wrong, or the page that says that there are no new accounts. */
    async send(reply: FastifyReply, state: FormState): Promise<FastifyReply> {
      if (!(await registrationAllowed())) return pages.send(reply.code(403), closed(state.returnTo));
      const { email, name = '' } = state;
      const problem = email === undefined ? undefined : problemOf({ email, name });
      return pages.send(problem ? reply.code(422) : reply, page({ ...state, ...problem }));
    },

    /** Signs the new user in, or shows the form with the reason. */
    async finish(
      request: FastifyRequest,
      reply: FastifyReply,
      attempt: Promise<SignedIn | null>,
      state: FormState,
    ): Promise<FastifyReply> {
      const { returnTo, email } = state;
      try {
        const signedIn = await attempt;
        if (!signedIn) return pages.send(reply, { template: 'user-sign-up-sent', view: { email } });
        const given = { returnTo, ...(email !== undefined && { email }) };
        return await signInPages.finish(request, reply, Promise.resolve(signedIn), given);
      } catch (error) {
        return reject(reply, error, state);
      }
    },
  };
}

const CONFIG = access('public', { page: true });

/** Registration, and the form for a forgotten password. */
export async function signUpPlugin(
  fastify: FastifyTypebox,
  options: PageContext & { signUpForm: SignUpForm },
): Promise<void> {
  const { accounts, signUpForm, pages, messages, path } = options;

  fastify.get(
    '/sign-up',
    { config: CONFIG, schema: { querystring: ReturnQuery } },
    async (request, reply) => {
      const { return_to: returnTo } = request.query;
      return signUpForm.send(reply, { returnTo });
    },
  );

  fastify.post(
    '/sign-up',
    { config: CONFIG, schema: { querystring: ReturnQuery, body: signUpBodyOf(signUpForm) } },
    async (request, reply) => {
      const { return_to: returnTo } = request.query;
      const { name, password, password_confirm: again } = request.body;
      const email = request.body.email.trim();
      const given = signUpForm.fieldForm.read(request.body);
      const typed = { returnTo, email, name, ...given };
      pages.keepForm(request, signUpForm.page(typed));
      const problem = problemOf({ email, name }) ?? passwordProblem(password, again);
      if (problem) return pages.send(reply.code(422), signUpForm.page({ ...typed, ...problem }));
      const profile = { ...(name && { name }), ...given };
      const account = { email, password, ...profile, locale: messages.negotiate(request) };
      return signUpForm.finish(request, reply, accounts.register(account, requestSource(request)), typed);
    },
  );

  fastify.get('/forgot-password', { config: CONFIG }, (_request, reply) =>
    pages.send(reply, forgotPassword()),
  );

  fastify.get('/forgot-password/sent', { config: CONFIG }, (_request, reply) =>
    pages.send(reply, { template: 'user-forgot-password-sent', view: { form: `${path()}/forgot-password` } }),
  );

  fastify.post(
    '/forgot-password',
    { config: CONFIG, schema: { body: EmailBody } },
    async (request, reply) => {
      const email = request.body.email.trim();
      pages.keepForm(request, forgotPassword({ email }));
      if (!matchesSchema(email, Email)) {
        const problems = [message('user-sign-up.email-invalid')];
        return pages.send(reply.code(422), forgotPassword({ email, problems, wrong: true }));
      }
      await accounts.forgotPassword(email, requestSource(request));
      return reply.redirect(`${path()}/forgot-password/sent`, 303);
    },
  );

  const forgotPassword = (state: { email?: string; problems?: Localized[]; wrong?: true } = {}): Page => ({
    template: 'user-forgot-password',
    view: { action: `${path()}/forgot-password`, signInHref: `${path()}/sign-in`, ...state },
  });
}

/** With the fields that the host declares. */
export const signUpBodyOf = ({ fieldForm }: SignUpForm) =>
  Closed({ ...SignUpBody.properties, ...fieldForm.body });

/** What is wrong with a form. */
interface Problem {
  problems?: Localized[];
  wrong?: { email?: true; name?: true; password?: true };
}

/** What is wrong with a form before anything is looked up. */
function problemOf({ email, name }: Record<'email' | 'name', string>): Problem | undefined {
  if (!matchesSchema(email, Email))
    return { problems: [message('user-sign-up.email-invalid')], wrong: { email: true } };
  return matchesSchema(name, OptionalName)
    ? undefined
    : { problems: [message('account.name-invalid')], wrong: { name: true } };
}

const passwordProblem = (password: string, again: string): Problem | undefined =>
  password === again ? undefined : { problems: [message('password.differ')], wrong: { password: true } };

/** What the form says about a rejected registration; undefined if it has a page of its own. */
function rejectionOf(error: AppError): Problem | undefined {
  if (error.code === 'EMAIL_TAKEN')
    return { problems: [message('user-sign-up.email-taken')], wrong: { email: true } };
  // A sentence of the host, in its language.
  if (error.code === 'REGISTRATION_REJECTED') return { problems: [() => error.message] };
  if (error.code === 'PASSKEY_EXPIRED' || error.code === 'PASSKEY_REJECTED')
    return { problems: [message('account-passkey.rejected')] };
  const problems = passwordSentences(error);
  return problems.length > 0 ? { problems, wrong: { password: true } } : undefined;
}

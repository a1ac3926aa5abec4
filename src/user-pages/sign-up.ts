import { type Localized, type Messages, message } from '../http/messages.js';
import type { Page, Pages } from '../http/pages.js';
import { Email, fits, OptionalName } from '../http/schemas.js';
import { access, originOf, type Scope } from '../http/scope.js';
import { AppError } from '../kernel/errors.js';
import { passwordSentences } from '../passwords/problems.js';
import { EmailBody, ReturnQuery, SignUpBody } from './schemas.js';
import type { Accounts } from './services.js';
import { type Destination, rejectForeignForm } from './session.js';
import { type SignInPages, withReturn } from './sign-in-pages.js';

export interface SignUpOptions {
  accounts: Pick<Accounts, 'register' | 'forgotPassword'>;
  signInPages: SignInPages;
  pages: Pages;
  messages: Pick<Messages, 'negotiate'>;
  path(): string;
  publicUrl(): string;
  registrationAllowed(): Promise<boolean>;
  destinationOf(returnTo: string | undefined): Destination;
}

/** What the user has typed, and what is wrong with it. */
interface FormState {
  email?: string;
  name?: string;
  problems?: Localized[];
  wrong?: { email?: true; name?: true; password?: true };
}

const CONFIG = access('public', { page: true });

/** Registration, and the form for a forgotten password. */
export async function signUpPlugin(scope: Scope, options: SignUpOptions): Promise<void> {
  const { accounts, signInPages, pages, messages, path, publicUrl, registrationAllowed } = options;

  scope.get('/sign-up', { config: CONFIG, schema: { querystring: ReturnQuery } }, async (request, reply) => {
    const { return_to: returnTo } = request.query;
    if (await registrationAllowed()) return pages.send(reply, formOf(returnTo));
    return pages.send(reply.code(403), closed(returnTo));
  });

  scope.post(
    '/sign-up',
    { config: CONFIG, schema: { querystring: ReturnQuery, body: SignUpBody } },
    async (request, reply) => {
      rejectForeignForm(request, publicUrl());
      const { return_to: returnTo } = request.query;
      const { name, password, password_confirm: again } = request.body;
      const email = request.body.email.trim();
      const typed = { email, name };
      pages.keepForm(request, formOf(returnTo, typed));
      const problem = problemOf({ email, name, password, again });
      if (problem) return pages.send(reply.code(422), formOf(returnTo, { ...typed, ...problem }));
      const given = { email, password, ...(name && { name }), locale: messages.negotiate(request) };
      try {
        const signedIn = await accounts.register(given, originOf(request));
        if (!signedIn) return pages.send(reply, { template: 'user-sign-up-sent', view: { email } });
        return await signInPages.finish(request, reply, Promise.resolve(signedIn), { returnTo, email });
      } catch (error) {
        if (!(error instanceof AppError)) throw error;
        if (error.code === 'REGISTRATION_DISABLED') return pages.send(reply.code(403), closed(returnTo));
        const rejected = rejectionOf(error);
        if (!rejected) throw error;
        return pages.send(reply.code(error.statusCode), formOf(returnTo, { ...typed, ...rejected }));
      }
    },
  );

  scope.get('/forgot-password', { config: CONFIG }, (_request, reply) => pages.send(reply, forgotPassword()));

  scope.get('/forgot-password/sent', { config: CONFIG }, (_request, reply) =>
    pages.send(reply, { template: 'user-forgot-password-sent', view: { form: `${path()}/forgot-password` } }),
  );

  scope.post('/forgot-password', { config: CONFIG, schema: { body: EmailBody } }, async (request, reply) => {
    rejectForeignForm(request, publicUrl());
    const email = request.body.email.trim();
    pages.keepForm(request, forgotPassword({ email }));
    if (!fits(email, Email)) {
      const problems = [message('user-sign-up.email-invalid')];
      return pages.send(reply.code(422), forgotPassword({ email, problems, wrong: true }));
    }
    await accounts.forgotPassword(email, originOf(request));
    return reply.redirect(`${path()}/forgot-password/sent`, 303);
  });

  const formOf = (returnTo: string | undefined, state: FormState = {}): Page => ({
    template: 'user-sign-up',
    view: {
      action: withReturn(`${path()}/sign-up`, returnTo),
      signInHref: withReturn(`${path()}/sign-in`, returnTo),
      ...state,
    },
    formTargets: options.destinationOf(returnTo).formTargets,
  });

  const closed = (returnTo: string | undefined): Page => ({
    template: 'sign-up-closed',
    view: {
      issuer: new URL(publicUrl()).host,
      signInHref: withReturn(`${path()}/sign-in`, returnTo),
    },
  });

  const forgotPassword = (state: { email?: string; problems?: Localized[]; wrong?: true } = {}): Page => ({
    template: 'user-forgot-password',
    view: { action: `${path()}/forgot-password`, signInHref: `${path()}/sign-in`, ...state },
  });
}

type Problem = Pick<FormState, 'problems' | 'wrong'>;

/** What is wrong with a form before anything is looked up. */
function problemOf(form: Record<'email' | 'name' | 'password' | 'again', string>): Problem | undefined {
  const { email, name, password, again } = form;
  if (!fits(email, Email))
    return { problems: [message('user-sign-up.email-invalid')], wrong: { email: true } };
  if (!fits(name, OptionalName))
    return { problems: [message('account.name-invalid')], wrong: { name: true } };
  return password === again
    ? undefined
    : { problems: [message('password.differ')], wrong: { password: true } };
}

/** What the form says about a rejected registration; undefined if it has a page of its own. */
function rejectionOf(error: AppError): Problem | undefined {
  if (error.code === 'EMAIL_TAKEN')
    return { problems: [message('user-sign-up.email-taken')], wrong: { email: true } };
  const problems = passwordSentences(error);
  return problems.length > 0 ? { problems, wrong: { password: true } } : undefined;
}

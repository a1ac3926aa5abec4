import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Localized, message } from '../../core/http/messages.js';
import type { Page } from '../../core/http/pages.js';
import { requestSource } from '../../core/http/routes.js';
import { AppError } from '../../core/kernel/errors.js';
import type { Enrolment } from '../../shared/factors/totp.js';
import type { SignedIn } from '../auth/sign-in/sign-in.js';
import type { PageContext, Passkeys } from './context.js';

/** What the user has typed, and what is wrong with it. */
export interface FormState {
  email?: string;
  problems?: Localized[];
  wrong?: true;
  notice?: Localized;
}

/** The sign-in of a browser, for the account page and for the pages of an application. */
export type SignInPages = ReturnType<typeof createSignInPages>;

/** The problem that the form shows for a rejected sign-in. Other errors have a page of their own. */
const PROBLEMS: Readonly<Record<string, string>> = {
  INVALID_CREDENTIALS: 'user-sign-in.wrong',
  ACCOUNT_SUSPENDED: 'user-sign-in.suspended',
  ACCOUNT_EXISTS: 'user-sign-in.account-exists',
  PROVIDER_EMAIL_NOT_VERIFIED: 'user-sign-in.provider-unverified',
  INVALID_TICKET: 'user-sign-in.expired',
  INVALID_CHALLENGE: 'user-sign-in.expired',
  REGISTRATION_DISABLED: 'user-sign-in.closed',
  INVALID_PASSKEY: 'sign-in.passkey-wrong',
  PASSKEY_EXPIRED: 'sign-in.passkey-wrong',
};

/** A rejected registration has a sentence of the host, in its language. */
function problemOf({ code, message: sentence }: AppError): Localized | undefined {
  if (code === 'REGISTRATION_REJECTED') return () => sentence;
  const problem = PROBLEMS[code];
  return problem === undefined ? undefined : message(problem);
}

export function createSignInPages(context: PageContext) {
  const { accounts, sessions, providers, passkeys, pages, path, publicUrl } = context;
  const { registrationAllowed, destinationOf, admitSignIn } = context;
  const { secondFactorStep } = accounts;

  /**
   * Stores the session of a sign-in in the browser and sends the user on. If the account asks for a second factor, or the
   * sign-in is rejected, the response is the page that says so.
   */
  const finish = async <T extends SignedIn>(
    request: FastifyRequest,
    reply: FastifyReply,
    attempt: Promise<T>,
    { returnTo, email }: { returnTo: string | undefined; email?: string },
    next?: (signedIn: T) => Page,
  ): Promise<FastifyReply> => {
    try {
      const signedIn = await attempt;
      await admitSignIn(signedIn.user).catch(async (error: unknown) => {
        await accounts.endSession(signedIn.refreshToken, requestSource(request));
        throw error;
      });
      await sessions.start(request, reply, signedIn);
      if (next) return pages.send(reply, next(signedIn));
      return reply.redirect(destinationOf(returnTo).href, 303);
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      const challenge = error.members?.['challenge'];
      if (error.code === 'SECOND_FACTOR_REQUIRED' && challenge !== undefined)
        return pages.send(reply, code(challenge, returnTo));
      if (error.code === 'SECOND_FACTOR_ENROLMENT_REQUIRED' && challenge !== undefined && secondFactorStep) {
        const enrolment = await secondFactorStep.begin(challenge, requestSource(request));
        return pages.send(reply, enrolmentOf(challenge, returnTo, { enrolment }));
      }
      if (error.code === 'EMAIL_NOT_VERIFIED') return sendUnverified(request, reply, email, returnTo);
      const problem = problemOf(error);
      if (problem === undefined) throw error;
      const state = {
        problems: [problem],
        wrong: true as const,
        ...(email !== undefined && { email }),
      };
      return pages.send(reply.code(error.statusCode), await signIn(returnTo, state));
    }
  };

  /** The password is right, but the address must be confirmed first. */
  const sendUnverified = async (
    request: FastifyRequest,
    reply: FastifyReply,
    email: string | undefined,
    returnTo: string | undefined,
  ): Promise<FastifyReply> => {
    if (email !== undefined) await accounts.resendVerification(email, requestSource(request));
    const view = { signInHref: withReturn(`${path()}/sign-in`, returnTo) };
    return pages.send(reply.code(403), { template: 'user-unverified', view });
  };

  const signIn = async (returnTo: string | undefined, state: FormState = {}): Promise<Page> => ({
    template: 'user-sign-in',
    view: {
      action: withReturn(`${path()}/sign-in`, returnTo),
      email: '',
      forgotHref: `${path()}/forgot-password`,
      ...((await registrationAllowed()) && { signUpHref: withReturn(`${path()}/sign-up`, returnTo) }),
      ...(accounts.emailLogin && { codeHref: withReturn(`${path()}/sign-in/code`, returnTo) }),
      ...(passkeys && passkeyView(passkeys, withReturn(`${path()}/sign-in/passkey`, returnTo))),
      providers: providersOf(returnTo),
      hasChoices: providers !== undefined || accounts.emailLogin !== undefined,
      ...state,
    },
    leadsElsewhere: destinationOf(returnTo).leadsElsewhere,
    ...(passkeys && { script: passkeys.script }),
  });

  const providersOf = (returnTo: string | undefined) =>
    providers?.providers().map(({ name, label }) => ({
      label,
      href: withReturn(`${path()}/sign-in/with/${name}`, returnTo),
    })) ?? [];

  const stepView = (challenge: string, returnTo: string | undefined) => ({
    token: challenge,
    signInHref: withReturn(`${path()}/sign-in`, returnTo),
    issuer: new URL(publicUrl()).host,
  });

  /** Asks for the second factor, after the first one. */
  const code = (challenge: string, returnTo: string | undefined, problems?: Localized[]): Page => ({
    template: 'second-factor',
    view: {
      ...stepView(challenge, returnTo),
      action: withReturn(`${path()}/sign-in/second-factor`, returnTo),
      problems,
    },
    leadsElsewhere: destinationOf(returnTo).leadsElsewhere,
  });

  /** Sets up the second factor that the operator requires. */
  const enrolmentOf = (
    challenge: string,
    returnTo: string | undefined,
    state: { enrolment: Enrolment | null; problems?: Localized[] },
  ): Page => ({
    template: 'second-factor-enrolment',
    view: {
      ...stepView(challenge, returnTo),
      action: withReturn(`${path()}/sign-in/second-factor/enrol`, returnTo),
      ...state,
    },
  });

  return { signIn, finish, code, enrolment: enrolmentOf };
}

/** The part of the page that offers passkeys. */
function passkeyView(passkeys: Passkeys, passkeyAction: string): { passkey: Record<string, string> } {
  const { ceremony, options } = passkeys.beginSignIn();
  return { passkey: { passkeyAction, ceremony, options: JSON.stringify(options) } };
}

/** An address of a page with the place to continue at. */
export const withReturn = (page: string, returnTo: string | undefined): string =>
  returnTo === undefined ? page : `${page}?${new URLSearchParams({ return_to: returnTo })}`;

/** The code with which an attempt was rejected; undefined if it succeeded or failed otherwise. */
export const rejectionOf = (attempt: Promise<unknown>): Promise<string | undefined> =>
  attempt.then(
    () => undefined,
    (error: unknown) => (error instanceof AppError ? error.code : undefined),
  );

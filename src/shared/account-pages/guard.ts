import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Pages, wantsPage } from '../../core/http/pages.js';
import { type Clock, isRecent, MINUTE } from '../../core/kernel/clock.js';
import { createFormTokens, type FormTokens } from '../console-kit/forms.js';
import { accountErrors } from './errors.js';
import type { Person, Session } from './sources.js';

/** A person who is signed in, and the token of the session. */
export interface SignedIn {
  principal: Person & { kind: 'agent' | 'human'; operatorSince?: number };
  session: Session;
  token: string;
}

/** The sign-in of the product. `page` is a page to return to, below the account page: `''`, `/password`. */
export interface SignIn {
  userOf(request: FastifyRequest, reply: FastifyReply): Promise<SignedIn | null>;
  /** Sends the sign-in form, which returns to the page. */
  sendSignIn(
    request: FastifyRequest,
    reply: FastifyReply,
    page: string,
    handle?: string,
  ): FastifyReply | Promise<FastifyReply>;
  /** Removes the session from the browser. */
  forgetSession(reply: FastifyReply): void;
}

export type PersonGuard = ReturnType<typeof createPersonGuard>;

export interface PersonGuardOptions {
  signIn: SignIn;
  pages: Pages;
  /** The path of the account page, which includes what a proxy adds. */
  path(): string;
  /** Further pages that a sign-in returns to, below the account page: `/address`, or what an expression finds. The first one counts. */
  furtherPages?: readonly (string | RegExp)[];
  /** How old a sign-in may be for what cannot be undone, in milliseconds. Default: 15 minutes. */
  maxAuthenticationAge?: number;
}

/** The tokens of the forms of a session. */
export const formTokensOf = (token: string, clock: Clock): FormTokens =>
  createFormTokens({ secret: `account ${token}`, clock });

/**
 * Admits people by their session only: agents have none, and no token or password in a header opens these pages. Every page then has a link
 * to the account page, and the token of its forms.
 */
export function createPersonGuard(options: PersonGuardOptions, clock: Clock) {
  const { signIn, pages, path, furtherPages = [], maxAuthenticationAge = 15 * MINUTE } = options;
  const known = [...PAGES, ...furtherPages];
  const admitted = new WeakMap<FastifyRequest, SignedIn>();

  /** The page that a person wanted to see; after a form, the one that contains it. */
  const pageOf = ({ url, server: { prefix } }: FastifyRequest): string => {
    const [path = ''] = url.slice(prefix.length).split('?');
    const isBelow = (page: string) => path === page || path.startsWith(`${page}/`);
    const found = known.map((page) =>
      typeof page === 'string' ? isBelow(page) && page : page.exec(path)?.[0],
    );
    return found.find(Boolean) || '';
  };

  const admitWithin = (within: number) => async (request: FastifyRequest, reply: FastifyReply) => {
    const user = await signIn.userOf(request, reply);
    if (user && isRecent(user.session.authTime, { now: clock.now(), within })) {
      admitted.set(request, user);
      pages.addToView(request, { accountHref: path(), form: formsOf(request).issue() });
      return undefined;
    }
    if (!wantsPage(request.headers.accept)) throw accountErrors.sign_in_first();
    return signIn.sendSignIn(request, reply, pageOf(request), user?.principal.handle);
  };

  /** The person of a request that a guard has admitted. */
  const personOf = (request: FastifyRequest): SignedIn => {
    const user = admitted.get(request);
    if (!user) throw new Error('The request was not admitted by the guard.');
    return user;
  };

  /** The tokens of the forms of this session. */
  const formsOf = (request: FastifyRequest): FormTokens => formTokensOf(personOf(request).token, clock);

  return {
    guard: admitWithin(Number.POSITIVE_INFINITY),
    /** The same if the person has signed in recently. */
    recentGuard: admitWithin(maxAuthenticationAge),
    personOf,
    formsOf,
    /** @throws login_rejected if no page of this session contained the form */
    checkForm(request: FastifyRequest) {
      if (!formsOf(request).isValid((request.body as { form?: unknown }).form)) {
        throw accountErrors.login_rejected({ page: 'stale_form' });
      }
    },
  };
}

/** The pages of this domain. */
const PAGES = ['/password', '/delete', '/second-factor', '/passkeys'];

import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Pages } from '../../core/http/pages.js';
import type { OwnPage } from './authorize/interaction-token.js';
import type { SignInPages } from './authorize/pages.js';
import type { Authorization } from './authorize/service.js';
import type { Cookies, SessionService, SignedInUser } from './sessions.js';

/** Sign-in for pages of the provider itself: the same form and the same session as for applications. */
export interface OwnPages {
  /** The user of the session of a request, and the token of that session. */
  userOf(request: FastifyRequest): Promise<(SignedInUser & { token: string }) | null>;
  /** Sends the sign-in form, which returns to the page. `handle` fills in the user name. */
  sendSignIn(request: FastifyRequest, reply: FastifyReply, page: OwnPage, handle?: string): FastifyReply;
  /** Sends the form for a new account, or says that sign-up is not open. */
  sendSignUp(request: FastifyRequest, reply: FastifyReply, page: OwnPage): FastifyReply;
  /** Removes the session from the browser. */
  forgetSession(reply: FastifyReply): void;
}

export interface OwnPagesOptions {
  sessions: Pick<SessionService, 'find'>;
  cookies: Cookies;
  authorization: Pick<Authorization, 'beginOwnSignIn'>;
  signInPages: SignInPages;
  isSignUpOpen: boolean;
  pages: Pages;
}

export function createOwnPages(options: OwnPagesOptions): OwnPages {
  const { sessions, cookies, authorization, signInPages, isSignUpOpen, pages } = options;

  const beginForm = (request: FastifyRequest, reply: FastifyReply, page: OwnPage): string => {
    const present = cookies.form.read(request);
    const { token, cookie } = authorization.beginOwnSignIn(page, present);
    if (cookie !== present) cookies.form.set(reply, cookie);
    return token;
  };

  return {
    async userOf(request) {
      const token = cookies.session.read(request);
      const user = await sessions.find(token);
      return user && token !== undefined ? { ...user, token } : null;
    },

    sendSignIn(request, reply, page, handle = '') {
      const form = { token: beginForm(request, reply, page), handle };
      // The page needs a sign-in that no header can give, so there is no challenge.
      return pages.send(reply.code(401), signInPages.signIn(page, form));
    },

    sendSignUp(request, reply, page) {
      if (!isSignUpOpen) return pages.send(reply.code(403), signInPages.signUpClosed(page));
      return pages.send(
        reply,
        signInPages.signUp(page, { token: beginForm(request, reply, page), handle: '' }),
      );
    },

    forgetSession: cookies.session.clear,
  };
}

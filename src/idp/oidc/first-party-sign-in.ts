import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Pages } from '../../core/http/pages.js';
import type { FirstPartyPage } from './authorize/interaction-token.js';
import type { SignInPages } from './authorize/pages.js';
import type { Authorization } from './authorize/service.js';
import type { Cookies, SessionService, SignedInUser } from './sessions.js';

/** Sign-in for first-party pages, those of the provider: the same form and the same session as for applications. */
export type FirstPartySignIn = ReturnType<typeof createFirstPartySignIn>;

export function createFirstPartySignIn({
  sessions,
  cookies,
  authorization,
  signInPages,
  isSignUpOpen,
  pages,
}: {
  sessions: SessionService;
  cookies: Cookies;
  authorization: Authorization;
  signInPages: SignInPages;
  isSignUpOpen: boolean;
  pages: Pages;
}) {
  const beginForm = (request: FastifyRequest, reply: FastifyReply, page: FirstPartyPage): string => {
    const present = cookies.form.read(request);
    const { token, cookie } = authorization.beginForm(page, present);
    if (cookie !== present) cookies.form.set(reply, cookie);
    return token;
  };

  return {
    /** The user of the session of a request, and the token of that session. */
    async userOf(request: FastifyRequest): Promise<(SignedInUser & { token: string }) | null> {
      const token = cookies.session.read(request);
      const user = await sessions.find(token);
      return user && token !== undefined ? { ...user, token } : null;
    },

    /** Sends the sign-in form, which returns to the page. `handle` fills in the user name. */
    sendSignIn(
      request: FastifyRequest,
      reply: FastifyReply,
      page: FirstPartyPage,
      handle: string = '',
    ): FastifyReply {
      const form = { token: beginForm(request, reply, page), handle };
      // The page needs a sign-in that no header can give, so there is no challenge.
      return pages.send(reply.code(401), signInPages.signIn(page, form));
    },

    /** Sends the form for a new account, or says that sign-up is not open. */
    sendSignUp(request: FastifyRequest, reply: FastifyReply, page: FirstPartyPage): FastifyReply {
      if (!isSignUpOpen) return pages.send(reply.code(403), signInPages.signUpClosed(page));
      return pages.send(
        reply,
        signInPages.signUp(page, { token: beginForm(request, reply, page), handle: '' }),
      );
    },

    /** Removes the session from the browser. */
    forgetSession: cookies.session.clear,
  };
}

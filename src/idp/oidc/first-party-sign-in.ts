import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Localized } from '../../core/http/messages.js';
import { beginForm } from './authorize/begin-form.js';
import type { FirstPartyPage } from './authorize/interaction-token.js';
import type { SignInPages } from './authorize/pages.js';
import type { Authorization } from './authorize/service.js';
import type { Cookies, SessionService, SignedInUser } from './sessions.js';
import type { OidcShared } from './shared.js';

/** Sign-in for first-party pages, those of the provider: the same form and the same session as for applications. */
export type FirstPartySignIn = ReturnType<typeof createFirstPartySignIn>;

export function createFirstPartySignIn(
  services: OidcShared & {
    sessions: SessionService;
    cookies: Cookies;
    authorization: Authorization;
    signInPages: SignInPages;
  },
) {
  const { sessions, cookies, signInPages, isSignUpOpen, pages } = services;
  return {
    /** The user of the session of a request, and the token of that session. */
    async userOf(request: FastifyRequest): Promise<(SignedInUser & { token: string }) | null> {
      const token = cookies.session.read(request);
      const user = await sessions.find(token);
      return user && token !== undefined ? { ...user, token } : null;
    },

    /** Sends the sign-in form, which returns to the page. `handle` fills in the user name, and `problems` say why it is sent. */
    sendSignIn(
      request: FastifyRequest,
      reply: FastifyReply,
      page: FirstPartyPage,
      handle: string = '',
      problems?: Localized[],
    ): FastifyReply {
      const token = beginForm(services, request, reply, page);
      const form = { token, handle, ...(problems && { problems }) };
      // The page needs a sign-in that no header can give, so there is no challenge.
      return pages.send(reply.code(401), signInPages.signIn(page, form));
    },

    /** Sends the form for a new account, or says that sign-up is not open. */
    sendSignUp(request: FastifyRequest, reply: FastifyReply, page: FirstPartyPage): FastifyReply {
      if (!isSignUpOpen) return pages.send(reply.code(403), signInPages.signUpClosed(page));
      const form = { token: beginForm(services, request, reply, page), handle: '' };
      return pages.send(reply, signInPages.signUp(page, form));
    },

    /** Removes the session from the browser. */
    forgetSession: cookies.session.clear,
  };
}

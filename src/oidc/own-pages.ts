import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Pages } from '../http/pages.js';
import type { OwnPage } from './authorize/interaction-token.js';
import { ownSignInPage } from './authorize/pages.js';
import type { Authorization } from './authorize/service.js';
import type { Cookies, SessionService, SignedInUser } from './sessions.js';

/** Sign-in for pages of the provider itself: the same form and the same session as for applications. */
export interface OwnPages {
  /** The user of the session of a request, and the token of that session. */
  userOf(request: FastifyRequest): Promise<(SignedInUser & { token: string }) | null>;
  /** Sends the sign-in form, which returns to the page. `handle` fills in the user name. */
  sendSignIn(request: FastifyRequest, reply: FastifyReply, page: OwnPage, handle?: string): FastifyReply;
}

export interface OwnPagesOptions {
  sessions: Pick<SessionService, 'find'>;
  cookies: Cookies;
  authorization: Pick<Authorization, 'beginOwnSignIn'>;
  pages: Pages;
  issuer(): string;
}

export function createOwnPages(options: OwnPagesOptions): OwnPages {
  const { sessions, cookies, authorization, pages, issuer } = options;
  return {
    async userOf(request) {
      const token = cookies.session.read(request);
      const user = await sessions.find(token);
      return user && token !== undefined ? { ...user, token } : null;
    },

    sendSignIn(request, reply, page, handle = '') {
      const present = cookies.form.read(request);
      const { token, cookie } = authorization.beginOwnSignIn(page, present);
      if (cookie !== present) cookies.form.set(reply, cookie);
      // The page needs a sign-in that no header can give, so there is no challenge.
      return pages.send(reply.code(401), ownSignInPage(issuer(), { token, handle }));
    },
  };
}

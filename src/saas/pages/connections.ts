import type { FastifyReply, FastifyRequest } from 'fastify';
import type { SealedCookie } from '../../core/http/cookies.js';
import type { Identity } from '../../core/http/identity.js';
import type { Localized } from '../../core/http/messages.js';
import type { Page } from '../../core/http/pages.js';
import { access, type FastifyTypebox, type RequestSource, requestSource } from '../../core/http/routes.js';
import { ownValue } from '../../core/kernel/fields.js';
import type { PageContext } from './context.js';
import { NoticeQuery, ReturnedQuery } from './schemas.js';
import { rejectionOf } from './sign-in-pages.js';

/** What a sign-in elsewhere has begun with. A connection belongs to the session in which it was begun. */
export interface BegunFlow {
  codeVerifier: string;
  session?: string;
  returnTo?: string | undefined;
}

/** A page on which users connect accounts that they have elsewhere. */
export interface ConnectionPage {
  name: 'providers' | 'agents';
  cookie: SealedCookie<BegunFlow>;
  /** What the page says after an action, and whether it is a problem. */
  notices: Readonly<Record<string, { notice: Localized } | { problems: Localized[] }>>;
  /** The notices of a connection that was not made, by the code of the error. */
  rejected: Readonly<Record<string, string>>;
  connect(
    user: Identity['user'],
    given: { ticket: string; codeVerifier: string },
    source: RequestSource,
  ): Promise<unknown>;
  pageOf(request: FastifyRequest, state?: object): Promise<Page>;
}

/** Shows the page and completes connections. Returns what leads back to the page after an action. */
export function registerConnectionPage(
  fastify: FastifyTypebox,
  { identityOf, pages, path }: PageContext,
  { name, cookie, notices, rejected, connect, pageOf }: ConnectionPage,
): (reply: FastifyReply, done: string) => FastifyReply {
  const config = access('recent-person', { page: true });
  const back = (reply: FastifyReply, done: string): FastifyReply =>
    reply.redirect(`${path()}/${name}?done=${done}`, 303);

  fastify.get(`/${name}`, { config, schema: { querystring: NoticeQuery } }, async (request, reply) =>
    pages.send(reply, await pageOf(request, ownValue(notices, request.query.done))),
  );

  fastify.get(
    `/${name}/return`,
    { config, exposeHeadRoute: false, schema: { querystring: ReturnedQuery } },
    async (request, reply) => {
      const begun = cookie.read(request);
      cookie.clear(reply);
      const { ticket } = request.query;
      const { user, session } = identityOf(request);
      // Another user may have signed in since: what one session has begun is not completed in another one.
      if (ticket === undefined || begun?.session !== session.id) return back(reply, 'cancelled');
      const { codeVerifier } = begun;
      const attempt = connect(user, { ticket, codeVerifier }, requestSource(request));
      const rejection = rejected[(await rejectionOf(attempt)) ?? ''];
      if (rejection === undefined) await attempt;
      return back(reply, rejection ?? 'connected');
    },
  );

  return back;
}

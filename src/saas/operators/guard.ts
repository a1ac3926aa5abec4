import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Identity } from '../../core/http/identity.js';
import { wantsPage } from '../../core/http/pages.js';
import { routeRules } from '../../core/http/routes.js';
import { type Clock, HOUR, isRecent, MINUTE } from '../../core/kernel/clock.js';
import type { AppError } from '../../core/kernel/errors.js';
import {
  admitOperator,
  demandOperatorRole,
  neededRole,
  type OperatorRole,
} from '../../shared/console-kit/roles.js';
import type { UserDocument, Users } from '../auth/store.js';

/** How old the sign-in of an operator may be for what only owners may do, and for everything else. */
const MAX_AGE_MS = { owner: 15 * MINUTE, other: 12 * HOUR };

export interface OperatorSessionOptions {
  users: Users;
  clock: Clock;
  /** The session of the browser; null without one. */
  visitorOf(request: FastifyRequest): Promise<Identity | null>;
  /** The page on which an operator signs in, and returns to a page of the admin area; absent without account pages. */
  signInHref: ((page: string) => string) | undefined;
  errors: Record<'REAUTHENTICATION_REQUIRED' | 'SECOND_FACTOR_REQUIRED', (about?: Message) => AppError>;
}

interface Message {
  message: string;
}

/** Operators who have signed in with their user accounts. */
export type OperatorSessions = ReturnType<typeof createOperatorSessions>;

/**
 * Admits operators by the session of their browser only, so that no token opens the admin area. The session and the role are read at each
 * request: the area closes in every process as soon as one of them ends.
 */
export function createOperatorSessions(options: OperatorSessionOptions) {
  const { users, clock, visitorOf, signInHref, errors } = options;

  const roleOf = async (id: string) => operatorRoleOf(await users.findOne({ id }));

  /** The role of the user of a session, and whether the session suffices for it. */
  const examine = async ({ user, session }: Identity) => ({
    role: await roleOf(user.id),
    hasFactor: session.amr.includes('mfa'),
  });

  return {
    roleOf,
    examine,

    /**
     * Resolves to whether the request has the session of an operator, or to the reply that sends the browser to the sign-in.
     * @throws FORBIDDEN for another role; REAUTHENTICATION_REQUIRED
     */
    async admit(request: FastifyRequest, reply: FastifyReply): Promise<boolean | FastifyReply> {
      const identity = await visitorOf(request);
      const { role, hasFactor } = identity ? await examine(identity) : {};
      if (!identity || !role) return false;
      const signInPage =
        routeRules(request.routeOptions).page && wantsPage(request.headers.accept) ? signInHref : undefined;
      const sendSignIn = () => signInPage && reply.redirect(signInPage(pageOf(request)), 303);
      if (!hasFactor) return sendSignIn() ?? false;
      const { user, session } = identity;
      const demand = (needed: OperatorRole): FastifyReply | undefined => {
        demandOperatorRole(role, needed);
        const within = needed === 'owner' ? MAX_AGE_MS.owner : MAX_AGE_MS.other;
        if (isRecent(Date.parse(session.authenticatedAt), { now: clock.now(), within })) return undefined;
        const sent = sendSignIn();
        if (!sent) throw errors.REAUTHENTICATION_REQUIRED();
        return sent;
      };
      const sent = demand(neededRole(request));
      if (sent) return sent;
      const { id, name, email } = user;
      admitOperator(request, { id, name: name || email, role, sessionId: session.id, demand });
      return true;
    },

    /**
     * Operators change what opens the admin area only in a session that it has opened: a factor that was added after a password alone
     * would open it for anyone who knows the password.
     * @throws SECOND_FACTOR_REQUIRED
     */
    async protectFactors({ user, session }: Identity, request: FastifyRequest): Promise<void> {
      if (!routeRules(request.routeOptions).changesFactors || session.amr.includes('mfa')) return;
      if ((await users.findOne({ id: user.id }))?.operatorRole === undefined) return;
      throw errors.SECOND_FACTOR_REQUIRED({
        message:
          'This account opens the admin area. Sign in with its passkey or second factor to change how it signs in.',
      });
    },
  };
}

/** The role of a user in the admin area; none while the account is closed, or its address is not verified. */
const operatorRoleOf = (user: UserDocument | null): OperatorRole | undefined =>
  user?.emailVerified && (user.suspendedAt ?? user.deletingAt) === undefined ? user.operatorRole : undefined;

/** The page of a request below the admin area with its query; for a form, the page that contains it. */
function pageOf({ url, method, routeOptions, server }: FastifyRequest): string {
  const below = url.slice(server.prefix.length);
  const isPage = method === 'GET' || server.hasRoute({ method: 'GET', url: routeOptions.url ?? '' });
  return isPage ? below : below.replace(/\/[^/]*$/, '');
}

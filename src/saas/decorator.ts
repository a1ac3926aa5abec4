import type { AuthEvents } from '../auth/events.js';
import type { Identity } from '../auth/sessions.js';
import type { BillingNotifications } from '../billing/notifications.js';
import type { RequestHeaders } from '../http/authorization.js';
import { httpErrors } from '../kernel/errors.js';
import type { Subscription } from '../ops/events.js';
import type { UserApi } from './user-api.js';

/** `fastify.saas`: what the plugin adds to the host's Fastify instance. */
export interface SaasDecorator {
  /** Hook for the host's own routes: `onRequest: fastify.saas.requireUser` sets `request.saas` or throws a 401. */
  readonly requireUser: UserGuard;
  /** Requires a subscription, too, to `plan` if given, or throws a 403. */
  readonly requireEntitled: (plan?: string) => UserGuard;
  /**
   * Returns the user and session of an `Authorization: Bearer` header, where there is no route to guard.
   * @throws AppError with `statusCode`, `code` and `headers`: UNAUTHENTICATED, TOKEN_EXPIRED
   */
  readonly authenticate: (headers: RequestHeaders) => Promise<Identity>;
  /**
   * Whether the user has access to features that need a subscription, to `plan` if given. False for unknown users; rejects
   * only when the store is unavailable. Does not consider suspensions, which `requireUser` rejects.
   */
  readonly entitles: (userId: string, plan?: string) => Promise<boolean>;
  readonly users: Readonly<UserApi>;
  /** Each event is emitted once, after its commit, in the process that committed it. */
  readonly events: Readonly<Subscription<SaasEvents>>;
}

export type SaasEvents = AuthEvents & BillingNotifications;

declare module 'fastify' {
  interface FastifyInstance {
    saas: SaasDecorator;
  }
  interface FastifyRequest {
    /** The signed-in user and session, on routes behind `requireUser`. */
    saas: Identity;
  }
}

/** The part of a request that the guards read and set. */
export interface UserRequest {
  headers: { authorization?: string | undefined };
  saas: Identity;
}

export type UserGuard = (request: UserRequest) => Promise<void>;

/** Creates `requireEntitled`. */
export function createEntitlementGuard(
  requireUser: UserGuard,
  { entitles }: Pick<SaasDecorator, 'entitles'>,
): (plan?: string) => UserGuard {
  return (plan) => async (request) => {
    await requireUser(request);
    if (await entitles(request.saas.user.id, plan)) return;
    const needed = plan === undefined ? 'a subscription' : `a subscription to ${plan}`;
    throw httpErrors.FORBIDDEN({ message: `This requires ${needed}.` });
  };
}

import type { AuthEvents } from '../auth/events.js';
import type { Identity } from '../auth/sessions.js';
import type { BillingNotices } from '../billing/notices.js';
import type { RequestHeaders } from '../http/authorization.js';
import { httpErrors } from '../kernel/errors.js';
import type { Subscription } from '../ops/events.js';
import type { UserApi } from './users.js';

/** What the plugin adds to the host's Fastify instance and requests. */

/** `fastify.saas` */
export interface SaasDecorator {
  /** For a host's own routes: `onRequest: fastify.saas.requireUser` sets `request.saas` or throws a 401. */
  readonly requireUser: UserGuard;
  /** The same for those whose subscription entitles them, to `plan` where one is named; else it throws a 403. */
  readonly requireEntitled: (plan?: string) => UserGuard;
  /**
   * The user and session behind an `Authorization: Bearer` header, where there is no route to guard.
   * @throws AppError with `statusCode`, `code` and `headers`: UNAUTHENTICATED, TOKEN_EXPIRED
   */
  readonly authenticate: (headers: RequestHeaders) => Promise<Identity>;
  /**
   * Whether the user may use what needs a subscription, to `plan` where one is named. False for unknown users; it
   * rejects only when the store is unavailable. A suspended account keeps what it has: `requireUser` refuses it.
   */
  readonly entitles: (userId: string, plan?: string) => Promise<boolean>;
  readonly users: Readonly<UserApi>;
  /** What has happened, told once, after its commit, in the process that committed it. */
  readonly events: Readonly<Subscription<SaasEvents>>;
}

export type SaasEvents = AuthEvents & BillingNotices;

declare module 'fastify' {
  interface FastifyInstance {
    saas: SaasDecorator;
  }
  interface FastifyRequest {
    /** Who makes this request, on routes behind `requireUser`. */
    saas: Identity;
  }
}

/** What of a request the guards of a host's own routes need and set. */
export interface UserRequest {
  headers: { authorization?: string | undefined };
  saas: Identity;
}

export type UserGuard = (request: UserRequest) => Promise<void>;

/** For a host's own routes: only those whose subscription entitles them, to `plan` where one is named. */
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

import type { FastifyRequest } from 'fastify';
import { personOf, type RequestIdentity } from '../core/http/identity.js';
import { routeRules } from '../core/http/routes.js';
import type { Clock } from '../core/kernel/clock.js';
import { httpErrors } from '../core/kernel/errors.js';
import { suggestion } from '../core/kernel/text.js';
import { authErrors } from './auth/errors.js';
import { type RecentAuthOptions, requireRecent } from './auth/sign-in/recent-auth.js';
import { demandRole, requireKnownRole } from './auth/users/roles.js';
import { billingErrors } from './billing/errors.js';
import type { KnownPlans } from './billing/plans/plans.js';
import type { Quotas } from './billing/quotas/service.js';
import type { SubscriptionService } from './billing/subscription/service.js';

/** The guards of `fastify.saas` for routes of the host. */

/** The part of a request that the guards read and set. */
export interface UserRequest {
  headers: { authorization?: string | undefined; 'x-organization'?: string | string[] | undefined };
  params?: unknown;
  saas: RequestIdentity;
  method?: string | undefined;
  url?: string | undefined;
  originalUrl?: string | undefined;
  rawHeaders?: string[];
  raw?: { rawHeaders: string[] };
  ip?: string;
  socket?: { remoteAddress?: string | undefined };
  routeOptions?: { config: unknown };
}

/** A hook for routes, such as `onRequest`. It rejects by throwing an error with its status. */
export type UserGuard = (request: UserRequest) => Promise<void>;

/** At our own routes, operators who act as a user only read, unless a route states otherwise. @throws IMPERSONATED */
export function refuseImpersonator({ session }: RequestIdentity, request: FastifyRequest): void {
  if (!session?.impersonator) return;
  const { access, whileImpersonated } = routeRules(request.routeOptions);
  const reads = ['GET', 'HEAD'].includes(request.method) && !access?.startsWith('recent-');
  if (!(whileImpersonated ?? reads)) throw authErrors.IMPERSONATED();
}

/** A route may have several guards, and each of them authenticates the request: the organization that one has found stays. */
export const keepOrganization =
  (guard: UserGuard): UserGuard =>
  async (request) => {
    const organization = request.saas?.organization;
    await guard(request);
    if (organization) request.saas.organization = organization;
  };

/** Creates `requireRecentAuth`. @param requirePerson refuses agents and API keys, whatever the route states */
export function createRecentAuthGuards(
  requirePerson: UserGuard,
  { hasSecondFactors, clock }: { hasSecondFactors: boolean; clock: Clock },
): (required?: RecentAuthOptions) => UserGuard {
  return (required = {}) => {
    refuseMissingFactors(required, hasSecondFactors);
    return async (request) => {
      await requirePerson(request);
      requireRecent(personOf(request.saas), required, clock);
    };
  };
}

/** @throws Error because no user could have a second factor */
export function refuseMissingFactors({ secondFactor }: RecentAuthOptions, hasSecondFactors: boolean): void {
  if (!secondFactor || hasSecondFactors) return;
  throw new Error(
    'requireRecentAuth: secondFactor needs FACTOR_ENCRYPTION_KEY or PASSKEYS, without which nobody has one.',
  );
}

/** Creates `requireRole`. */
export const createRoleGuard =
  (requireUser: UserGuard, roles: readonly string[] | undefined) =>
  (role: string): UserGuard => {
    requireKnownRole(role, roles);
    return async (request) => {
      await requireUser(request);
      demandRole(request.saas.user, [role]);
    };
  };

/** Whose plan counts for a guard. */
export interface PlanOwner {
  /** `organization`: that of the organization in which the request is made, as `requireMember`. Default: `user`. */
  of?: 'user' | 'organization';
}

/** Returns a guard that admits users or members, and resolves to the ID of the user or organization. */
export type AdmitOwner = (owner: PlanOwner | undefined) => (request: UserRequest) => Promise<string>;

/** @param requireMember throws without the option `organizations` */
export function createAdmitOwner(requireUser: UserGuard, requireMember: () => UserGuard): AdmitOwner {
  return ({ of = 'user' } = {}) => {
    const admit = of === 'user' ? requireUser : requireMember();
    return async (request) => {
      await admit(request);
      return (of === 'user' ? request.saas.user.id : request.saas.organization?.id) ?? '';
    };
  };
}

/** Creates `requireEntitled` and `requireFeature`. */
export function createEntitlementGuards(
  admitOwner: AdmitOwner,
  { entitles, hasFeature }: SubscriptionService,
  known: KnownPlans,
) {
  return {
    requireEntitled(plan?: string, owner?: PlanOwner): UserGuard {
      refuseUnknownPlan(plan, known);
      const admit = admitOwner(owner);
      return async (request) => {
        if (await entitles(await admit(request), plan)) return;
        const needed = plan === undefined ? 'a subscription' : `a subscription to ${plan}`;
        throw httpErrors.FORBIDDEN({ message: `This requires ${needed}.` });
      };
    },

    requireFeature(feature: string, owner?: PlanOwner): UserGuard {
      refuseUnknownFeature(feature, known);
      const admit = admitOwner(owner);
      return async (request) => {
        if (await hasFeature(await admit(request), feature)) return;
        throw billingErrors.FEATURE_NOT_INCLUDED({
          message: `Your plan does not include the feature ${feature}.`,
        });
      };
    },
  };
}

/** Creates `requireLimit`. */
export function createLimitGuard(
  admitOwner: AdmitOwner,
  { consume }: Quotas,
  known: KnownPlans,
): (name: string, owner?: PlanOwner) => UserGuard {
  return (name, owner) => {
    refuseUnknownLimit(name, known);
    const admit = admitOwner(owner);
    return async (request) => {
      const { allowed, limit, resetsAt } = await consume(await admit(request), name);
      if (allowed) return;
      const again = resetsAt === null ? '' : ` It starts again at ${resetsAt}.`;
      throw billingErrors.LIMIT_REACHED({ message: `Your plan includes ${limit} of ${name}.${again}` });
    };
  };
}

/** @throws Error that lists the plans, because a misspelt one would reject every user */
export function refuseUnknownPlan(plan: string | undefined, { names }: KnownPlans): void {
  if (plan === undefined || !names) return;
  refuseUnknown(
    'plans',
    plan,
    names,
    `requireEntitled: '${plan}' is not a plan that can be purchased or granted.`,
  );
}

/** @throws Error that lists the features */
export function refuseUnknownFeature(feature: string, { names, features }: KnownPlans): void {
  if (names)
    refuseUnknown('features', feature, features, `requireFeature: no plan has the feature '${feature}'.`);
}

/** @throws Error that lists the limits */
export const refuseUnknownLimit = (limit: string, { limits }: KnownPlans): void =>
  refuseUnknown('limits', limit, limits, `requireLimit: no plan has the limit '${limit}'.`);

function refuseUnknown(kind: string, name: string, known: ReadonlySet<string>, problem: string): void {
  if (known.has(name)) return;
  const all = [...known];
  const listed = `The ${kind} of the option 'billing' are: ${all.join(', ') || 'none'}.`;
  throw new Error(`${problem} ${listed}${suggestion(name, all)}`);
}

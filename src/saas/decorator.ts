import type { RequestHeaders } from '../core/http/authorization.js';
import { personOf, type RequestIdentity } from '../core/http/identity.js';
import type { SubscriptionSummary } from '../core/http/schemas.js';
import type { Clock } from '../core/kernel/clock.js';
import { httpErrors } from '../core/kernel/errors.js';
import { suggestion } from '../core/kernel/text.js';
import type { Subscription } from '../core/ops/events.js';
import type { AgentEvents } from './agents/schemas.js';
import type { AuthEvents } from './auth/events.js';
import type { Identity } from './auth/sessions/sessions.js';
import { type RecentAuthOptions, requireRecent } from './auth/sign-in/recent-auth.js';
import { billingErrors } from './billing/errors.js';
import type { BillingNotifications } from './billing/notifications.js';
import type { KnownPlans } from './billing/plans/plans.js';
import type { CheckoutOrder } from './billing/schemas.js';
import type { SubscriptionChanges } from './billing/subscription/changes.js';
import type { ReportUsage } from './billing/usage/reports.js';
import type { CustomSettings, CustomSettingsValues } from './settings/definitions.js';
import type { UserApi } from './user-api.js';

/** `fastify.saas`: what the plugin adds to the host's Fastify instance. */
export interface SaasDecorator {
  /**
   * Hook for the host's own routes: `onRequest: fastify.saas.requireUser` sets `request.saas` or throws a 401. With
   * `config: { agentScope: 'files:read' }`, the route also admits the access tokens of agents with this scope; without it,
   * only people. The same applies to `requireEntitled` and `requireFeature`.
   */
  readonly requireUser: UserGuard;
  /**
   * Requires a subscription, too, to `plan` if given, or throws a 403.
   * @throws Error at once if the option `billing` defines the plans and has no such plan
   */
  readonly requireEntitled: (plan?: string) => UserGuard;
  /**
   * Requires a plan that includes the feature, too, or throws a 403 (FEATURE_NOT_INCLUDED).
   * @throws Error at once if the option `billing` defines the plans and none has the feature
   */
  readonly requireFeature: (feature: string) => UserGuard;
  /**
   * Requires that the user signed in, or proved it again at `POST /auth/reauthenticate`, at most `maxAge` seconds ago
   * (default 600) and, with `secondFactor`, with a second factor; otherwise throws a 401 (REAUTHENTICATION_REQUIRED,
   * SECOND_FACTOR_REQUIRED) with the challenge of RFC 9470. Never admits agents.
   * @throws Error at once for `secondFactor` without FACTOR_ENCRYPTION_KEY
   */
  readonly requireRecentAuth: (required?: RecentAuthOptions) => UserGuard;
  /**
   * Returns the user and session of an `Authorization: Bearer` header, where there is no route to guard: people only.
   * @throws AppError with `statusCode`, `code` and `headers`: UNAUTHENTICATED, TOKEN_EXPIRED
   */
  readonly authenticate: (headers: RequestHeaders) => Promise<Identity>;
  /**
   * Whether the user has access to features that need a subscription, to `plan` if given. False for unknown users; rejects
   * only when the store is unavailable. Does not consider suspensions, which `requireUser` rejects.
   */
  readonly entitles: (userId: string, plan?: string) => Promise<boolean>;
  /** Whether one of the user's plans includes the feature, as `entitles`. */
  readonly hasFeature: (userId: string, feature: string) => Promise<boolean>;
  /**
   * Every limit of the option `billing` by name: the highest of the user's plans, 0 if none has it, `Infinity` if it is
   * unlimited. Every limit is 0 for unknown users.
   */
  readonly limits: (userId: string) => Promise<Record<string, number>>;
  /** Management of users. */
  readonly users: Readonly<UserApi>;
  /** Purchases and changes of subscriptions on behalf of users. */
  readonly billing: Readonly<BillingApi>;
  /** Reports usage that the payment provider bills. */
  readonly reportUsage: ReportUsage;
  /** The settings of the option `customSettings`. */
  readonly settings: Readonly<SettingsApi>;
  /** Each event is emitted once, after its commit, in the process that committed it. Webhooks get the same events: docs/webhooks.md. */
  readonly events: Readonly<Subscription<SaasEvents>>;
}

/** `fastify.saas.billing`: purchases and changes on behalf of a user. `pause` does not need BILLING_ALLOW_PAUSE. */
export interface BillingApi extends SubscriptionChanges {
  /**
   * What the user holds now, as `User.subscription`: the subscription or grant that gives access, otherwise the best subscription.
   * `none` and `free` for a user who is not known.
   */
  get(userId: string): Promise<SubscriptionSummary>;
  /**
   * Opens the provider's payment page as `POST /billing/create-checkout-session` does, with options that a browser cannot
   * choose: `trialDays`, `promotionCodes`, `coupon`, `promotionCode`, `automaticTax`, `taxIds`, `billingAddress`, `locale`.
   * @throws VALIDATION_ERROR, NOT_FOUND and the errors of the route
   */
  createCheckout(userId: string, order: CheckoutOrder): Promise<{ sessionId: string; url: string }>;
}

/** `fastify.saas.settings`: the settings of the option `customSettings`. */
export interface SettingsApi {
  /**
   * Every setting with its value or default, secret ones decrypted. A change by the operator applies within two seconds.
   * `get<typeof customSettings>()` infers the types from the declarations.
   * @throws Error if a secret setting was encrypted with another key
   */
  get<D extends CustomSettings = CustomSettings>(): Promise<CustomSettingsValues<D>>;
}

/** The events of `fastify.saas.events` by name. */
export type SaasEvents = AuthEvents & BillingNotifications & AgentEvents;

declare module 'fastify' {
  interface FastifyInstance {
    /** The SaaS backend. */
    saas: SaasDecorator;
  }
  interface FastifyRequest {
    /** The user and session, or what acts for the user, on routes behind `requireUser`. */
    saas: RequestIdentity;
  }
  interface FastifyContextConfig {
    /** The scope with which agents may call a route behind `fastify.saas.requireUser`; absent: people only. */
    agentScope?: string;
  }
}

/** The part of a request that the guards read and set. */
export interface UserRequest {
  headers: { authorization?: string | undefined };
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

/** Creates `requireRecentAuth`. @param requirePerson refuses agents, whatever the route states */
export function createRecentAuthGuards(
  requirePerson: UserGuard,
  { hasSecondFactors, clock }: { hasSecondFactors: boolean; clock: Clock },
): SaasDecorator['requireRecentAuth'] {
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

/** Creates `requireEntitled` and `requireFeature`. */
export function createEntitlementGuards(
  requireUser: UserGuard,
  { entitles, hasFeature }: Pick<SaasDecorator, 'entitles' | 'hasFeature'>,
  known: KnownPlans,
): Pick<SaasDecorator, 'requireEntitled' | 'requireFeature'> {
  return {
    requireEntitled(plan) {
      refuseUnknownPlan(plan, known);
      return async (request) => {
        await requireUser(request);
        if (await entitles(request.saas.user.id, plan)) return;
        const needed = plan === undefined ? 'a subscription' : `a subscription to ${plan}`;
        throw httpErrors.FORBIDDEN({ message: `This requires ${needed}.` });
      };
    },

    requireFeature(feature) {
      refuseUnknownFeature(feature, known);
      return async (request) => {
        await requireUser(request);
        if (await hasFeature(request.saas.user.id, feature)) return;
        throw billingErrors.FEATURE_NOT_INCLUDED({
          message: `Your plan does not include the feature ${feature}.`,
        });
      };
    },
  };
}

/** @throws Error that lists the plans, because a misspelt one would reject every user */
export function refuseUnknownPlan(plan: string | undefined, { names }: KnownPlans): void {
  if (plan === undefined || !names || names.has(plan)) return;
  const listed = `The plans of the option 'billing' are: ${[...names].join(', ') || 'none'}.`;
  throw new Error(
    `requireEntitled: '${plan}' is not a plan that can be purchased or granted. ${listed}${suggestion(plan, [...names])}`,
  );
}

/** @throws Error that lists the features */
export function refuseUnknownFeature(feature: string, { names, features }: KnownPlans): void {
  if (!names || features.has(feature)) return;
  const listed = `The features of the option 'billing' are: ${[...features].join(', ') || 'none'}.`;
  throw new Error(
    `requireFeature: no plan has the feature '${feature}'. ${listed}${suggestion(feature, [...features])}`,
  );
}

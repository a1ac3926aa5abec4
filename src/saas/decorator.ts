import { authorizationIn, type RequestHeaders } from '../core/http/authorization.js';
import type { Identity, OrganizationIdentity, RequestIdentity } from '../core/http/identity.js';
import type { Listeners } from '../core/ops/events.js';
import type { AgentTokens } from './agents.js';
import type { Approving } from './approving.js';
import type { PageRequest } from './auth/sessions/browser-sessions.js';
import type { RecentAuthOptions } from './auth/sign-in/recent-auth.js';
import type { SaasBase } from './base.js';
import type { OpenedCheckout } from './billing/checkout/open-checkouts.js';
import type { Consumption } from './billing/quotas/service.js';
import type { CheckoutOrder, HoldingsView, QuotaView } from './billing/schemas.js';
import type { SubscriptionChanges } from './billing/subscription/changes.js';
import type { ReportUsage } from './billing/usage/reports.js';
import type { CallerGuards } from './callers.js';
import type { SaasEvents } from './events.js';
import {
  createAdmitOwner,
  createEntitlementGuards,
  createLimitGuard,
  createRecentAuthGuards,
  createRoleGuard,
  type PlanOwner,
  type UserGuard,
} from './guards.js';
import type { SaasModules } from './modules.js';
import type { OrganizationApi } from './organizations/host-api.js';
import { knownRoles } from './organizations/roles.js';
import { createDescribeSession, createOrganizationGuards, type VisitorSession } from './organizations.js';
import type { CustomSettings, CustomSettingsValues } from './settings/definitions.js';
import { createUserApi, type UserApi } from './user-api.js';

/** `fastify.saas`: what the plugin adds to the host's Fastify instance. */
export interface SaasDecorator {
  /**
   * Hook for the host's own routes: `onRequest: fastify.saas.requireUser` sets `request.saas` or throws a 401. With
   * `config: { agentScope: 'files:read' }`, the route also admits the access tokens of agents and the API keys of users with this
   * scope; without it, only people. The same applies to `requireEntitled` and `requireFeature`.
   */
  readonly requireUser: UserGuard;
  /**
   * Requires a subscription, too, to `plan` if given, or throws a 403. With `{ of: 'organization' }`, that of the organization as
   * `requireMember`.
   * @throws Error at once if the option `billing` defines the plans and has no such plan
   */
  readonly requireEntitled: (plan?: string, owner?: PlanOwner) => UserGuard;
  /**
   * Requires a plan that includes the feature, too, or throws a 403 (FEATURE_NOT_INCLUDED).
   * @throws Error at once if the option `billing` defines the plans and none has the feature
   */
  readonly requireFeature: (feature: string, owner?: PlanOwner) => UserGuard;
  /**
   * Requires that the user has a role of the option `userRoles`, too, or throws a 403. An agent acts with the roles of its user.
   * @throws Error at once for an unknown role
   */
  readonly requireRole: (role: string) => UserGuard;
  /**
   * Requires that the user signed in, or proved it again at `POST /auth/reauthenticate`, at most `maxAge` seconds ago
   * (default 600) and, with `secondFactor`, with a second factor; otherwise throws a 401 (REAUTHENTICATION_REQUIRED,
   * SECOND_FACTOR_REQUIRED) with the challenge of RFC 9470. Never admits agents or API keys, nor operators who act as the user (403
   * IMPERSONATED).
   * @throws Error at once for `secondFactor` without FACTOR_ENCRYPTION_KEY
   */
  readonly requireRecentAuth: (required?: RecentAuthOptions) => UserGuard;
  /**
   * Returns the user and session of an `Authorization: Bearer` header, where there is no route to guard: people only.
   * @throws AppError with `statusCode`, `code` and `headers`: UNAUTHENTICATED, TOKEN_EXPIRED
   */
  readonly authenticate: (headers: RequestHeaders) => Promise<Identity>;
  /**
   * Who is signed in, for pages that the server renders: by the cookie of the session, or by an access token; null for a visitor, and for
   * a form that a page of another site has sent. The request is that of Fastify, Express or `node:http`. Reading ends no session.
   */
  readonly getSession: (request: PageRequest) => Promise<VisitorSession | null>;
  /**
   * Whether the user has access to features that need a subscription, to `plan` if given. False for unknown users; rejects
   * only when the store is unavailable. Does not consider suspensions, which `requireUser` rejects.
   */
  readonly entitles: (ownerId: string, plan?: string) => Promise<boolean>;
  /** Whether one of the user's plans includes the feature, as `entitles`. */
  readonly hasFeature: (ownerId: string, feature: string) => Promise<boolean>;
  /**
   * Every limit of the option `billing` by name: the highest of the user's plans, 0 if none has it, `Infinity` if it is
   * unlimited. Every limit is 0 for unknown users.
   */
  readonly limits: (ownerId: string) => Promise<Record<string, number>>;
  /**
   * Requires that the user is a member of the organization that the request names: by the parameter `organization` of the path, by the
   * header X-Organization or by the active one of the session; with `role`, one whose role permits all that this role does. Sets
   * `request.saas.organization`. Throws a 400, 403 or 404 otherwise. An agent acts with the role of its user, and an API key of an
   * organization in this one only, with the role of who is responsible for it.
   * @throws Error at once without the option `organizations`, or for an unknown role
   */
  readonly requireMember: (required?: { role?: string }) => UserGuard;
  /**
   * Requires that the role of the user in the organization has a permission of the option `organizationRoles`, as `requireMember`.
   * @throws Error at once if no role has it
   */
  readonly requirePermission: (permission: string) => UserGuard;
  /**
   * For an MCP endpoint of the application: `protectMcp(fastify, { ...fastify.saas.agentTokens(), resource, … })` admits the agents of
   * users, and `saas.user` is the person.
   * @throws Error without `agents.directory` or AGENT_ISSUER
   */
  readonly agentTokens: () => AgentTokens;
  /** Management of organizations; absent without the option `organizations`. */
  readonly organizations?: Readonly<OrganizationApi>;
  /** Management of users. */
  readonly users: Readonly<UserApi>;
  /** Purchases and changes of subscriptions on behalf of users. */
  readonly billing: Readonly<BillingApi>;
  /**
   * Uses one unit of a limit of the option `billing` with each request, or throws a 403 (LIMIT_REACHED) that says when the limit starts
   * again. Applies to the agents of `requireUser`, too.
   * @throws Error at once if no plan has the limit
   */
  readonly requireLimit: (name: string, owner?: PlanOwner) => UserGuard;
  /** What users have used of the limits of the option `billing`. */
  readonly usage: Readonly<UsageApi>;
  /** Reports usage that the payment provider bills. */
  readonly reportUsage: ReportUsage;
  /** The settings of the option `customSettings`. */
  readonly settings: Readonly<SettingsApi>;
  /** Each event is emitted once, after its commit, in the process that committed it. Webhooks get the same events: docs/saas/webhooks.md. */
  readonly events: Readonly<Listeners<SaasEvents>>;
}

/** `fastify.saas.billing`: purchases and changes on behalf of a user. `pause` does not need BILLING_ALLOW_PAUSE. */
export interface BillingApi extends SubscriptionChanges {
  /**
   * What the user holds now, as `GET /billing/holdings`: `status`, `plan` and `entitled` as in `User.subscription`, every subscription,
   * purchase and grant with what can be done with it, and the features and limits of all of them. `none` and `free` for a user who is
   * not known.
   */
  get(ownerId: string): Promise<HoldingsView>;
  /**
   * Opens the provider's payment page as `POST /billing/create-checkout-session` does, with options that a browser cannot
   * choose: `trialDays`, `promotionCodes`, `coupon`, `promotionCode`, `automaticTax`, `taxIds`, `billingAddress`, `locale`.
   * @throws VALIDATION_ERROR, NOT_FOUND and the errors of the route
   */
  createCheckout(ownerId: string, order: CheckoutOrder): Promise<OpenedCheckout>;
}

/** `fastify.saas.usage`: limits that count. Every function throws VALIDATION_ERROR for an unknown limit, and NOT_FOUND for an unknown user. */
export interface UsageApi {
  /**
   * Uses a part of a limit, if it is left: `allowed` says whether it was. In one atomic step, so that parallel requests in several
   * processes never use more than the limit.
   */
  consume(ownerId: string, name: string, quantity?: number): Promise<Consumption>;
  /** Gives back what was used, for example when a project is deleted; never below 0. */
  release(ownerId: string, name: string, quantity?: number): Promise<QuotaView>;
  /**
   * Adds credits, which are used once the limit of the period is reached, and remain after it.
   * @param key identifies the credits, for example the ID of a payment: the same key counts once
   */
  addCredits(ownerId: string, name: string, quantity: number, key: string): Promise<QuotaView>;
  /** Every limit with what the user has used, what is left and when it starts again. */
  list(ownerId: string): Promise<QuotaView[]>;
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

declare module 'fastify' {
  interface FastifyInstance {
    /** The SaaS backend. */
    saas: SaasDecorator;
  }
  interface FastifyRequest {
    /**
     * The user and session, or what acts for the user, on routes behind `requireUser`; with the organization behind `requireMember` and
     * `requirePermission`.
     */
    saas: RequestIdentity & Approving & { organization: OrganizationIdentity };
  }
  interface FastifyContextConfig {
    /** The scope with which agents and API keys may call a route behind `fastify.saas.requireUser`; absent: people only. */
    agentScope?: string;
  }
}

export function createDecorator(
  { context }: SaasBase,
  { users, auth, agents, billing, settings, organizations, events, secondFactors, passkeys }: SaasModules,
  { requireOwner, requireUser, requirePerson }: CallerGuards,
): SaasDecorator {
  const { subscription, plans } = billing;
  const hasSecondFactors = secondFactors !== undefined || passkeys !== undefined;
  const ofMembers = organizations ? createOrganizationGuards(requireOwner, organizations) : NO_ORGANIZATIONS;
  const describeSession = createDescribeSession(organizations, subscription.features);
  const admitOwner = createAdmitOwner(requireUser, ofMembers.requireMember);
  return Object.freeze({
    requireUser,
    requireRole: createRoleGuard(requireUser, users.userRoles),
    ...createEntitlementGuards(admitOwner, subscription, plans),
    requireRecentAuth: createRecentAuthGuards(requirePerson, { hasSecondFactors, clock: context.clock }),
    ...ofMembers,
    getSession: async (request: PageRequest) => {
      const found = await auth.visitorOf(request);
      return found && describeSession(found);
    },
    authenticate: async (headers: RequestHeaders) => auth.service.authenticate(authorizationIn(headers)),
    entitles: subscription.entitles,
    hasFeature: subscription.hasFeature,
    limits: subscription.limits,
    agentTokens() {
      if (agents) return agents.tokens();
      throw new Error(
        'agentTokens() needs agents.directory, or AGENT_ISSUER, AGENT_RESOURCE and AGENT_CLIENT_ID.',
      );
    },
    ...(organizations && { organizations: Object.freeze(organizations.api) }),
    users: createUserApi({ users, auth, grants: billing.grants }),
    billing: Object.freeze({
      get: subscription.holdings,
      createCheckout: billing.checkout.create,
      ...billing.changes,
    }),
    requireLimit: createLimitGuard(admitOwner, billing.quotas, plans),
    usage: Object.freeze(usageApi(billing.quotas)),
    reportUsage: billing.reportUsage,
    settings: Object.freeze({ get: async () => (await settings.custom?.get()) ?? {} }) as SettingsApi,
    events: events.events,
  });
}

/** Without the option, as `knownRoles` says. */
const withoutOrganizations = () => knownRoles(false) as never;
const NO_ORGANIZATIONS = { requireMember: withoutOrganizations, requirePermission: withoutOrganizations };

const usageApi = ({ consume, release, addCredits, list }: UsageApi): UsageApi => ({
  consume,
  release,
  addCredits,
  list,
});

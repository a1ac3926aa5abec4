import { isDisabled, type Users } from '../auth/store.js';
import { createApply } from '../billing/apply.js';
import { type Catalog, createCatalog } from '../billing/catalog.js';
import { createClaims, type Pause } from '../billing/claims.js';
import { createFetch } from '../billing/fetch.js';
import { createForget, createForgetGone, type Forget } from '../billing/forget.js';
import { createGateway } from '../billing/gateway.js';
import { createGrants, type Grants, type GrantTarget } from '../billing/grants.js';
import { createMailFor } from '../billing/mails.js';
import type { BillingNotices } from '../billing/notices.js';
import { createOwnerLookup } from '../billing/owner.js';
import { createPlans, type Plans } from '../billing/plans.js';
import { createProcessor, type Processor } from '../billing/process.js';
import { createProjector, type ProjectionTarget } from '../billing/project.js';
import { type BillingJobs, createBillingJobs } from '../billing/recheck.js';
import { createRefresh } from '../billing/refresh.js';
import { createResync, type Resync } from '../billing/resync.js';
import { isLiveKey } from '../billing/schemas.js';
import { type Billing, createBilling } from '../billing/service.js';
import {
  customerCollection,
  paymentCollection,
  subscriptionCollection,
  type WebhookEvents,
  webhookEventCollection,
} from '../billing/store.js';
import { createSubscriptionService, type SubscriptionService } from '../billing/subscription.js';
import { createSummaryOf, type SummaryOf } from '../billing/summary.js';
import { createWebhook, type Webhook } from '../billing/webhook.js';
import { createSubscriptionWriter } from '../billing/write.js';
import { type PublicUrl, withLeadingSlash } from '../config/public-url.js';
import type { Outbox } from '../email/service.js';
import type { Audit } from '../ops/audit.js';
import type { Emit } from '../ops/events.js';
import type { JobLog } from '../ops/jobs.js';
import type { Store } from '../storage/collection.js';
import type { ResolvedSaas } from './options.js';

/** Billing put together: what it is given of the other domains, and what these are given of it. */

export interface BillingParts {
  store: Store;
  users: Users;
  audit: Audit;
  outbox: Outbox;
  emit: Emit<BillingNotices>;
  publicUrl: Pick<PublicUrl, 'get'>;
  log: JobLog;
  pause: Pause;
}

export interface BillingDomain {
  billing: Billing;
  forget: Forget;
  subscription: SubscriptionService;
  summaryOf: SummaryOf;
  grants: Grants;
  catalog: Catalog;
  webhook: Webhook;
  webhookEvents: WebhookEvents;
  plans: Plans;
  processor: Processor;
  resync: Resync;
  jobs: BillingJobs;
}

export function createBillingDomain(
  {
    config: { values },
    runtime: { clock, random },
  }: {
    config: Pick<ResolvedSaas['config'], 'values'>;
    runtime: Pick<ResolvedSaas['runtime'], 'clock' | 'random'>;
  },
  { store, users, audit, outbox, emit, publicUrl, log, pause }: BillingParts,
): BillingDomain {
  const events = webhookEventCollection(store);
  const customers = customerCollection(store);
  const subscriptions = subscriptionCollection(store);
  const payments = paymentCollection(store);
  const { paymentSecretKey: key, billingReturnUrlRelative: returnPath, pastDue } = values;
  const gateway = key === undefined ? undefined : createGateway(key, values.paymentApiUrl);
  const plans = createPlans(values.billingPrices, (priceId) =>
    log.warn({ priceId }, 'purchased price has no configured plan; no access granted'),
  );

  const writer = createSubscriptionWriter(subscriptions, clock);
  const projector = createProjector(subscriptions, projectionOn(users));
  const findUser = (id: string) => users.findOne({ id });
  const userExists = async (id: string) => (await findUser(id)) !== null;
  const forget = createForget({ customers, subscriptions, payments, events, projector });
  const forgetGone = createForgetGone(forget, userExists);
  const claims = createClaims(events, { clock, random, pause });
  const processor = createProcessor({
    claims,
    events,
    payments,
    ownerOf: createOwnerLookup({ subscriptions, customers, userExists, clock }),
    forgetGone,
    apply: createApply({ subscriptions, writer, plans, fetch: createFetch(gateway, plans, log) }),
    projector,
    mailFor: createMailFor({
      async findUser(id) {
        const user = await findUser(id);
        return user && { email: user.email, name: user.name ?? '' };
      },
      putMail: outbox.put,
      billingUrl: () => publicUrl.get() + withLeadingSlash(returnPath),
      clock,
    }),
    emit,
    isLive: isLiveKey(key),
    pastDue,
    clock,
  });
  const refresh =
    gateway &&
    createRefresh({ gateway, subscriptions, writer, plans, projector, forgetGone, emit, pastDue, clock });

  return {
    billing: createBilling({
      customers,
      payments,
      projector,
      processor,
      plans,
      async isOpen(id) {
        const user = await findUser(id);
        return user !== null && !isDisabled(user);
      },
      forgetGone,
      gateway,
      refresh,
      publicUrl: publicUrl.get,
      returnPath,
      clock,
    }),
    forget,
    subscription: createSubscriptionService({
      customers,
      projector,
      processor,
      forgetGone,
      grantOf: async (id) => (await findUser(id))?.grant,
      gateway,
      refresh,
      pastDue,
      clock,
    }),
    grants: createGrants({ target: grantsOn(users), audit, clock }),
    summaryOf: createSummaryOf({ all: projector.all, pastDue, clock }),
    catalog: createCatalog({ customers, plans, gateway, clock }),
    webhook: createWebhook({
      secrets: [values.paymentWebhookSecret, values.paymentWebhookSecretPrevious].filter(
        (secret) => secret !== undefined,
      ),
      claims,
      processor,
      audit,
      clock,
    }),
    webhookEvents: events,
    plans,
    processor,
    resync: createResync({ customers, gateway, refresh, replay: processor.replay }),
    jobs: createBillingJobs({ events, subscriptions, processor, refresh, clock, log }),
  };
}

/** Where billing writes on the record of a user. */
export function projectionOn(users: Users): ProjectionTarget {
  return {
    async revision(userId) {
      const user = await users.findOne({ id: userId });
      return user && (user.subscriptionRev ?? 0);
    },
    async write(userId, revision, { status, plan, held }) {
      const written = await users.updateOne(
        { id: userId, subscriptionRev: revision === 0 ? null : revision },
        {
          set: {
            subscriptionStatus: status,
            subscriptionPlan: plan,
            subscriptionsHeld: { rev: revision + 1, terms: held },
          },
          inc: { subscriptionRev: 1 },
        },
      );
      return written !== null;
    },
  };
}

/** Where grants stand: on the record of a user, which a deletion removes. */
export function grantsOn(users: Users): GrantTarget {
  return {
    async write(id, grant) {
      const before = await users.findOne({ id });
      const change = grant ? { set: { grant } } : { unset: ['grant' as const] };
      const written = before && (await users.updateOne({ id, deletingAt: null }, change));
      return written && { before: before.grant };
    },
  };
}

import { type SubscriptionStatus, toTimestamp, type User } from '../http/schemas.js';
import type { Clock } from '../kernel/clock.js';
import { httpErrors } from '../kernel/errors.js';
import { nullIfTaken } from '../storage/collection.js';
import { createCoalescer } from './coalesce.js';
import { findEntitlement, type Grant, isInForce, type PastDue } from './entitlement.js';
import { billingErrors } from './errors.js';
import type { ForgetGone } from './forget.js';
import type { Gateway } from './gateway.js';
import type { Processor } from './process.js';
import { NO_SUBSCRIPTION, type Projector } from './project.js';
import type { Refresh } from './refresh.js';
import type { Subscription } from './schemas.js';
import { idIn, type Json, objectIn } from './snapshot.js';
import { bestOf } from './status.js';
import type { Customers, SubscriptionDocument } from './store.js';

/** What a user has, and what it entitles them to. */
export interface SubscriptionService {
  /** What entitles the user; where nothing does, their best subscription, or none. */
  current(userId: string): Promise<Subscription>;
  /**
   * The same after a look at the provider: for the moment between the return from checkout and the webhook.
   * @throws BILLING_NOT_CONFIGURED, PAYMENT_PROVIDER_ERROR, NOT_FOUND for a session that is not the user's
   */
  sync(user: User, sessionId?: string): Promise<Subscription>;
  /** Whether a subscription or a grant entitles the user, to `plan` where one is named. False for unknown users. */
  entitles(userId: string, plan?: string): Promise<boolean>;
}

export interface SubscriptionDependencies {
  customers: Customers;
  projector: Projector;
  processor: Processor;
  forgetGone: ForgetGone;
  /** What the operator gave to a user. */
  grantOf(userId: string): Promise<Grant | undefined>;
  /** Both absent while no key is configured. */
  gateway: Gateway | undefined;
  refresh: Refresh | undefined;
  pastDue: PastDue;
  clock: Clock;
}

export function createSubscriptionService(deps: SubscriptionDependencies): SubscriptionService {
  const { customers, projector, processor, gateway, refresh, pastDue, clock } = deps;

  const context = () => ({ pastDue, now: clock.now() });
  const allOf = (userId: string) => Promise.all([projector.all(userId), deps.grantOf(userId)]);

  const current = async (userId: string): Promise<Subscription> => {
    const [bought, grant] = await allOf(userId);
    const entitlement = findEntitlement(bought, grant, context());
    const granted = grant && isInForce(grant, clock.now()) ? grantView(grant) : null;
    if (entitlement && 'grant' in entitlement) return { ...grantedSubscription(entitlement.grant), granted };
    const shown = entitlement?.subscription ?? bestOf(bought);
    return { ...(shown ? subscriptionView(shown, entitlement !== null) : NONE), granted };
  };

  /** The customer that a session of the user's names. */
  const customerIn = (session: Json | null, user: User): string | undefined => {
    const { userId } = objectIn(session?.['metadata']);
    const isTheirs = session && session['client_reference_id'] === user.id && userId === user.id;
    // Somebody else's session is as unknown as one that never was.
    if (!isTheirs) throw httpErrors.NOT_FOUND({ message: 'The checkout session was not found.' });
    return idIn(session['customer']);
  };

  const sessionOnce = createCoalescer<Json | null>();

  return {
    current,

    async sync(user, sessionId) {
      if (!gateway || !refresh) throw billingErrors.BILLING_NOT_CONFIGURED();
      if (sessionId !== undefined) {
        const session = await sessionOnce(sessionId, () => gateway.checkoutSession(sessionId));
        const customerId = customerIn(session, user);
        if (customerId !== undefined) {
          await customers.insert({ id: user.id, customerId, createdAt: clock.now() }).catch(nullIfTaken);
          await deps.forgetGone(user.id);
        }
      }
      const customer = await customers.findOne({ id: user.id });
      if (customer) {
        await refresh.allOf(customer.customerId, user.id);
        await processor.replay(customer.customerId);
      }
      return current(user.id);
    },

    async entitles(userId, plan) {
      if (!isIdentifier(userId)) return false;
      const [bought, grant] = await allOf(userId);
      return findEntitlement(bought, grant, context(), plan) !== null;
    },
  };
}

/** The store refuses to look for anything else. */
const isIdentifier = (value: unknown): boolean =>
  typeof value === 'string' && /^[\x21-\x7e]{1,255}$/.test(value);

type SubscriptionView = Omit<Subscription, 'granted'>;

const NONE: SubscriptionView = {
  ...NO_SUBSCRIPTION,
  entitled: false,
  priceId: null,
  quantity: null,
  currentPeriodStart: null,
  currentPeriodEnd: null,
  trialEnd: null,
  cancelAtPeriodEnd: null,
  cancelAt: null,
  canceledAt: null,
  endedAt: null,
  updatedAt: null,
};

const time = (milliseconds: number | undefined) =>
  milliseconds === undefined ? null : toTimestamp(milliseconds);

const grantView = ({ plan, since, until }: Grant) => ({
  plan,
  since: toTimestamp(since),
  until: time(until),
});

/** A grant in the shape of a subscription. */
function grantedSubscription({ plan, since, until }: Grant): SubscriptionView {
  return {
    ...NONE,
    status: 'granted',
    plan,
    entitled: true,
    currentPeriodStart: toTimestamp(since),
    currentPeriodEnd: time(until),
    updatedAt: toTimestamp(since),
  };
}

/** A subscription as clients see it. */
function subscriptionView(held: SubscriptionDocument, entitled: boolean): SubscriptionView {
  return {
    status: held.status as SubscriptionStatus,
    plan: held.plan,
    entitled,
    priceId: held.priceId ?? null,
    quantity: held.quantity ?? null,
    currentPeriodStart: time(held.currentPeriodStart),
    currentPeriodEnd: time(held.currentPeriodEnd),
    trialEnd: time(held.trialEnd),
    cancelAtPeriodEnd: held.cancelAtPeriodEnd,
    cancelAt: time(held.cancelAt),
    canceledAt: time(held.canceledAt),
    endedAt: time(held.endedAt),
    updatedAt: time(held.updatedAt),
  };
}

import { toTimestamp } from '../../../core/http/schemas.js';
import { DAY, HOUR } from '../../../core/kernel/clock.js';
import { invalidFields } from '../../../core/kernel/errors.js';
import { defined } from '../../../core/kernel/fields.js';
import { fixedWindow } from '../../../core/throttle/throttle.js';
import type { BillingContext } from '../context.js';
import { billingErrors } from '../errors.js';
import { type Holdings, isRunning } from '../holdings.js';
import { MAIN_FAMILY } from '../plans/plans.js';
import { asInteger, asList, asObject, asTime, idOf, type Json } from '../provider/json.js';
import { PRORATIONS, type Proration, type SubscriptionChange } from '../provider/subscription-changes.js';
import type { Subscription } from '../schemas.js';
import type { Seats } from '../seats.js';
import { isTerminal, type SubscriptionDocument } from '../store.js';
import {
  CANCELLABLE_LATER,
  CHANGEABLE,
  endsWithPeriod,
  hasMixedPeriods,
  isCollectionPaused,
  isFlexible,
  periodEndOf,
  requireChangeable,
  requireOrder,
  requireStatus,
  statusOf,
} from './change-rules.js';
import {
  type AddOnOrder,
  createOrders,
  isPending,
  type OrderedItem,
  type PlanChange,
  type Target,
} from './orders.js';
import {
  type ChangedBy,
  createPerform,
  type NextChange,
  type PerformDependencies,
  UNDONE,
} from './perform.js';
import { previewView } from './previews.js';
import type { ChangePreview } from './schemas.js';

/**
 * Changes of a user's subscription. The state at the provider decides what remains to be done, so a repeated request has
 * no further effect. `subscriptionId` is required if the user has several subscriptions.
 *
 * @throws BILLING_NOT_CONFIGURED, VALIDATION_ERROR, SUBSCRIPTION_NOT_FOUND, SUBSCRIPTION_NOT_CHANGEABLE,
 *   PAYMENT_PROVIDER_ERROR
 */
export type SubscriptionChanges = ReturnType<typeof createSubscriptionChanges>;

/** The removal of an add-on. */
export type AddOnRemoval = Omit<AddOnOrder, 'quantity'>;

/** A promotion code as users enter it. */
export interface PromotionCodeOrder extends Target {
  /** As the user enters it. */
  code: string;
}

/** A later end of the trial. */
export interface TrialExtension extends Target {
  /** Unix time in milliseconds. */
  until: number;
}

/** The end of a subscription. */
export interface Cancellation extends Target {
  /** Default: `period_end`. */
  when?: 'period_end' | 'now';
}

/** https://docs.stripe.com/billing/subscriptions/billing-mode */
const CLASSIC =
  'This subscription has the classic billing mode, in which the payment provider pauses none. Contact the support of this site.';

export function createSubscriptionChanges(
  context: BillingContext,
  { holdings, seats, ...deps }: Omit<PerformDependencies, 'orders'> & { holdings: Holdings; seats: Seats },
) {
  const { plans, config, throttle, clock, requireGateway } = context;
  const orders = createOrders(context, { holdings, seats });
  const { mainItemOf, undoing } = orders;
  const prorationOf = (proration: Proration = config.billingProration ?? 'always_invoice') => {
    requireOneOf('proration', proration, PRORATIONS);
    return proration;
  };

  const { fetch, perform } = createPerform(context, { ...deps, orders });

  const preview = async <Order extends PlanChange | AddOnOrder>(
    ownerId: string,
    target: Target,
    order: Order,
    changeOf: (subscription: Json, stored: SubscriptionDocument, order: Order) => Promise<OrderedItem | null>,
  ): Promise<ChangePreview> => {
    requireOrder(order);
    const proration = prorationOf(order.proration);
    const gateway = requireGateway();
    const stored = await orders.select(ownerId, target);
    const { id, currentPeriodEnd } = stored;
    const { object } = await fetch(id);
    requireChangeable(object);
    const item = await changeOf(object, stored, order);
    const isLater = 'when' in order && order.when === 'period_end';
    const isInvoiced = !isLater && (proration === 'always_invoice' || item?.startsPeriod);
    const invoice = item && isInvoiced ? await gateway.previewChange(id, item, proration) : null;
    const isEnding = endsWithPeriod(object, mainItemOf(object, stored));
    return previewView(object, invoice, isEnding ? undefined : currentPeriodEnd);
  };

  const changes = {
    /**
     * Changes the price of the main item, its quantity, or both, and ends a change that was scheduled before. Other items stay.
     * @throws PRICE_NOT_ALLOWED, CURRENCY_MISMATCH, PAYMENT_DECLINED
     */
    async change(ownerId: string, order: PlanChange, ...by: ChangedBy): Promise<Subscription> {
      const { when = 'now', priceId, quantity } = order;
      requireOrder(order);
      requireOneOf('when', when, ['now', 'period_end']);
      const proration = prorationOf(order.proration);
      const next: NextChange = async (subscription, stored) => {
        requireChangeable(subscription);
        const item = await orders.itemChange(subscription, stored, order);
        if (!item) return null;
        if (when === 'period_end') return orders.scheduling(subscription, stored, item);
        if (isPending(subscription, item)) return null;
        return undoing(subscription, stored) ?? { kind: 'item', item, proration };
      };
      const describe = (item: Json) =>
        `${shownItem(item)} to ${priceId}${shownQuantity(quantity)}${when === 'now' ? '' : ' at the end of the period'}`;
      return perform({ ownerId, target: order, by, next, event: CHANGED, describe });
    },

    /** Ends a scheduled change, or one that awaits its payment. Does nothing if there is none. */
    undoChange: async (ownerId: string, target: Target = {}, ...by: ChangedBy): Promise<Subscription> =>
      perform({ ownerId, target, by, next: undoing, ...UNDONE }),

    /**
     * Adds an add-on to the subscription of the plan, as an item that is charged with it, or changes its quantity.
     * @throws PRICE_NOT_ALLOWED, CURRENCY_MISMATCH, PAYMENT_DECLINED, ALREADY_SUBSCRIBED if it is a subscription of its own
     */
    async setAddOn(ownerId: string, order: AddOnOrder, ...by: ChangedBy): Promise<Subscription> {
      requireOrder(order);
      const proration = prorationOf(order.proration);
      const next: NextChange = async (subscription, stored) => {
        requireChangeable(subscription);
        const item = await orders.addOnChange(subscription, stored, order);
        if (!item || isPending(subscription, item)) return null;
        return undoing(subscription, stored) ?? { kind: 'item', item, proration };
      };
      const describe = () => `add-on ${order.priceId}${shownQuantity(order.quantity)}`;
      return perform({ ownerId, target: mainTarget(order), by, next, event: CHANGED, describe });
    },

    /** What `setAddOn` would charge now. Changes nothing. @throws the same */
    previewAddOn: (ownerId: string, order: AddOnOrder): Promise<ChangePreview> =>
      preview(ownerId, mainTarget(order), order, orders.addOnChange),

    /**
     * Removes an add-on: the item of a subscription at once, with a credit for the rest of the period; a subscription of its own ends with
     * its period.
     * @throws PRICE_NOT_ALLOWED for what is no add-on, such as the usage-based price of a plan
     */
    async removeAddOn(
      ownerId: string,
      { priceId, proration, ...target }: AddOnRemoval,
      ...by: ChangedBy
    ): Promise<Subscription> {
      const plan = orders.addOnOf(priceId);
      const held = (await holdings.listBought(ownerId)).filter((one) => isRunning(one));
      const own = held.find(({ family }) => family === plan);
      if (own) return changes.cancel(ownerId, { subscriptionId: own.id }, ...by);
      const behavior = prorationOf(proration);
      const next: NextChange = (subscription, stored) => {
        const itemId = idOf(orders.addOnItem(subscription, stored, plan));
        if (itemId === undefined) return null;
        requireChangeable(subscription);
        return undoing(subscription, stored) ?? { kind: 'remove-item', itemId, proration: behavior };
      };
      const describe = () => `without add-on ${priceId}`;
      return perform({ ownerId, target: mainTarget(target), by, next, event: CHANGED, describe });
    },

    /**
     * Gives the discount of a promotion code to a subscription whose plan is sold with promotion codes and that has no discount yet. An
     * operator can give it to any plan, can name a coupon by its ID, and has no limit of attempts.
     * @throws PROMOTION_NOT_VALID, RATE_LIMITED
     */
    async applyPromotionCode(
      ownerId: string,
      { code, ...target }: PromotionCodeOrder,
      ...by: ChangedBy
    ): Promise<Subscription> {
      const gateway = requireGateway();
      const [ip = 'local', , operator] = by;
      const isOperator = operator !== undefined;
      if (!isOperator) await throttle.countKey(PROMOTION_CODES, ownerId, ip);
      const promotion = await gateway.promotionCode(code);
      const promotionCodeId = idOf(promotion);
      const coupon = isOperator ? { coupon: code } : undefined;
      const discount = promotionCodeId === undefined ? coupon : { promotion_code: promotionCodeId };
      const next: NextChange = async (subscription, stored) => {
        requireStatus(subscription, CANCELLABLE_LATER);
        const { promotionCodes } = plans.checkoutOf(stored.priceId ?? '');
        const owner = idOf(promotion?.['customer']);
        const isOwn = owner === undefined || owner === idOf(subscription['customer']);
        if (!(promotionCodes || isOperator) || !discount || !isOwn) throw billingErrors.PROMOTION_NOT_VALID();
        const expanded = await gateway.expandedSubscription(stored.id);
        const discounts = asList(expanded?.['discounts']);
        if (discounts.some((one) => isOf(one, discount))) return null;
        if (discounts.length > 0) throw billingErrors.SUBSCRIPTION_NOT_CHANGEABLE({ message: DISCOUNTED });
        return undoing(subscription, stored) ?? { kind: 'discount', discount };
      };
      const describe = () => (promotionCodeId ? `promotion code ${promotionCodeId}` : `coupon ${code}`);
      return perform({ ownerId, target, by, next, event: CHANGED, describe });
    },

    /** Ends the trial of a subscription later. Nothing is charged before. */
    async extendTrial(
      ownerId: string,
      { until, ...target }: TrialExtension,
      ...by: ChangedBy
    ): Promise<Subscription> {
      const next: NextChange = (subscription, stored) => {
        requireStatus(subscription, ['trialing']);
        const end = asTime(subscription['trial_end']) ?? 0;
        if (end === until) return null;
        if (end > until || until > clock.now() + MAX_TRIAL_MS)
          throw invalidFields({
            path: 'until',
            message: `must be after ${toTimestamp(end)}, and within two years`,
          });
        return undoing(subscription, stored) ?? { kind: 'trial-end', at: until };
      };
      const describe = () => `trial until ${toTimestamp(until)}`;
      return perform({ ownerId, target, by, next, event: CHANGED, describe });
    },

    /** What `change` would charge now. Changes nothing. @throws PRICE_NOT_ALLOWED, CURRENCY_MISMATCH */
    preview: (ownerId: string, order: PlanChange): Promise<ChangePreview> =>
      preview(ownerId, order, order, orders.itemChange),

    /** Ends a subscription, by default with the period of its main item, and what is scheduled. */
    async cancel(
      ownerId: string,
      { when = 'period_end', ...target }: Cancellation = {},
      ...by: ChangedBy
    ): Promise<Subscription> {
      requireOneOf('when', when, ['period_end', 'now']);
      const next: NextChange = (subscription, stored) => {
        if (isTerminal(statusOf(subscription))) return null;
        if (when === 'now') return { kind: 'cancel-now' };
        requireStatus(subscription, CANCELLABLE_LATER);
        const mainItem = mainItemOf(subscription, stored);
        if (endsWithPeriod(subscription, mainItem)) return null;
        const ending: SubscriptionChange = hasMixedPeriods(subscription)
          ? { kind: 'cancel-at', at: periodEndOf(subscription, mainItem) }
          : { kind: 'cancel-at-period-end' };
        return undoing(subscription, stored) ?? ending;
      };
      const describe = () => (when === 'now' ? 'now' : 'at the end of the period');
      return perform({ ownerId, target, by, next, event: 'subscription.canceled', describe });
    },

    /**
     * Takes back a cancellation at the end of the period, and ends a pause, which starts a period and collects its payment.
     * @throws PAYMENT_DECLINED, PAYMENT_METHOD_REQUIRED
     */
    async resume(ownerId: string, target: Target = {}, ...by: ChangedBy): Promise<Subscription> {
      const next: NextChange = async (subscription, stored) => {
        requireStatus(subscription, CANCELLABLE_LATER);
        const isScheduled = subscription['cancel_at_period_end'] === true;
        if (isScheduled || endsWithPeriod(subscription, mainItemOf(subscription, stored)))
          return undoing(subscription, stored) ?? { kind: isScheduled ? 'keep' : 'clear-cancel-at' };
        if (isCollectionPaused(subscription)) return { kind: 'collect' };
        if (statusOf(subscription) !== 'paused') return null;
        await orders.requirePaymentMethod(subscription);
        return { kind: 'resume' };
      };
      return perform({ ownerId, target, by, next, event: 'subscription.resumed' });
    },

    /** Until `resume`, the subscription has no periods, invoices and access. Ends what is scheduled. */
    async pause(ownerId: string, target: Target = {}, ...by: ChangedBy): Promise<Subscription> {
      const next: NextChange = (subscription, stored) => {
        if (statusOf(subscription) === 'paused' || isCollectionPaused(subscription)) return null;
        requireStatus(subscription, CHANGEABLE);
        if (!isFlexible(subscription)) throw billingErrors.SUBSCRIPTION_NOT_CHANGEABLE({ message: CLASSIC });
        return undoing(subscription, stored) ?? { kind: 'pause' };
      };
      return perform({ ownerId, target, by, next, event: 'subscription.paused' });
    },
  };
  return changes;
}

/** Add-ons are part of the subscription of the plan. */
const mainTarget = ({ subscriptionId }: Target) => defined({ family: MAIN_FAMILY, subscriptionId });

const CHANGED = 'subscription.changed';

const DISCOUNTED = 'The subscription has a discount already. One code can be used at a time.';

/** As long as the provider permits a trial. */
const MAX_TRIAL_MS = 730 * DAY;

/** Whether a discount is that of a promotion code or a coupon. */
const isOf = (one: Json, wanted: { promotion_code: string } | { coupon: string }): boolean =>
  'coupon' in wanted
    ? idOf(asObject(one['source'])['coupon'] ?? one['coupon']) === wanted.coupon
    : idOf(one['promotion_code']) === wanted.promotion_code;

/** Attempts of a user, so that codes cannot be guessed. */
const PROMOTION_CODES = fixedWindow('promotion-code', 10, HOUR);

/** Validates at run time, because callers on the server may not use TypeScript. */
function requireOneOf(path: string, value: string, accepted: readonly string[]): void {
  if (!accepted.includes(value))
    throw invalidFields({
      path,
      message: `must be ${accepted.slice(0, -1).join(', ')} or ${accepted.at(-1)}`,
    });
}

const shownQuantity = (quantity: number | undefined) => (quantity === undefined ? '' : ` × ${quantity}`);

const shownItem = (item: Json): string =>
  `${idOf(item['price']) ?? 'no price'}${shownQuantity(asInteger(item['quantity']))}`;

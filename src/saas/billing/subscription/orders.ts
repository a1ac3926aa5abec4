import { isDeepStrictEqual } from 'node:util';
import { invalidFields } from '../../../core/kernel/errors.js';
import { defined } from '../../../core/kernel/fields.js';
import type { BillingContext } from '../context.js';
import { billingErrors } from '../errors.js';
import { type Holding, type Holdings, hasPrice, isRunning } from '../holdings.js';
import { asInteger, asList, asObject, asText, idOf, type Json } from '../provider/json.js';
import type { ItemChange, Proration, SubscriptionChange } from '../provider/subscription-changes.js';
import type { Seats } from '../seats.js';
import type { SubscriptionDocument, SubscriptionItem } from '../store.js';
import {
  endsWithPeriod,
  isTrialPause,
  periodEndOf,
  requireQuantity,
  requireSellable,
} from './change-rules.js';
import { isOrderedByUser, readNextPhase } from './schedules.js';
import { findMainItem, readItems, readPauseReason } from './snapshot.js';

/** Which subscription an order is about, and what it changes there. */

export type Orders = ReturnType<typeof createOrders>;

/** Which subscription; default: the only one that can be changed. */
export interface Target {
  /** At the payment provider. */
  subscriptionId?: string;
}

/** An add-on of the subscription. */
export interface AddOnOrder extends Target {
  /** Of an independent plan. */
  priceId: string;
  /** Default: that of the add-on, or 1. Metered prices have none. */
  quantity?: number;
  /** As in `PlanChange`. */
  proration?: Proration;
}

/** Another price or quantity of a subscription. */
export interface PlanChange extends Target {
  /** At the payment provider. */
  priceId: string;
  /** Default: the present quantity. Metered prices have none. */
  quantity?: number;
  /** Default: `now`. At the end of the period, nothing is charged before. */
  when?: 'now' | 'period_end';
  /** How the difference for the rest of the period is charged; default: the option `billingProration`. Routes do not accept it. */
  proration?: Proration;
}

/** The main item as ordered. */
export interface OrderedItem extends ItemChange {
  /** Whether the change starts a period, which is invoiced at once. */
  startsPeriod: boolean;
}

const OTHER_FAMILY =
  'This price belongs to another plan, which is held beside this subscription. Buy it at checkout instead.';

const NO_ADD_ON = 'This price is no add-on that can be part of a subscription.';

const AGREED =
  'The seller has scheduled changes of this subscription, which cannot be undone here. Contact the support of this site.';

export function createOrders(
  { plans, clock, requireGateway }: BillingContext,
  { holdings, seats }: { holdings: Holdings; seats: Seats },
) {
  /**
   * The subscription that a request is about: the named one, otherwise the only one that runs, a usable one before one whose first
   * payment is missing, and plans of this product before others. An order can replace what has its price and what is of the same family.
   */
  const select = async (
    ownerId: string,
    { subscriptionId, priceId, ...order }: Target & { priceId?: string; family?: string },
  ) => {
    const held = (await holdings.listBought(ownerId)).filter(({ subscription }) => subscription);
    const family = order.family ?? (priceId === undefined ? undefined : plans.familyOfPrice(priceId));
    const hasIt = (one: Holding) => priceId !== undefined && hasPrice(one, priceId);
    const isReplaceable = (one: Holding) => family === undefined || hasIt(one) || one.family === family;
    const named = held.find(({ id }) => id === subscriptionId);
    if (subscriptionId !== undefined) {
      if (!named?.subscription) throw billingErrors.SUBSCRIPTION_NOT_FOUND();
      if (isRunning(named) && !isReplaceable(named))
        throw billingErrors.SUBSCRIPTION_NOT_CHANGEABLE({ message: OTHER_FAMILY });
      return named.subscription;
    }
    const running = held.filter((one) => isRunning(one) && isReplaceable(one));
    const usable = preferred(preferred(running, hasIt), ({ status }) => status !== 'incomplete');
    const candidates = preferred(usable, ({ family }) => family !== undefined);
    if (candidates.length > 1) {
      const ids = candidates.map(({ id }) => id).join(', ');
      throw invalidFields({
        path: 'subscriptionId',
        message: `is required, because there are several: ${ids}`,
      });
    }
    const selected = (candidates[0] ?? held.find((one) => !isRunning(one)))?.subscription;
    if (!selected) throw billingErrors.SUBSCRIPTION_NOT_FOUND();
    return selected;
  };

  const mainItemOf = (subscription: Json, stored: SubscriptionDocument): Json =>
    findMainItem(subscription, plans, stored);

  /** What changes an item to an order, or adds one if it is empty; null if nothing differs. */
  const changeOf = async (
    item: Json,
    subscription: Json,
    ownerId: string,
    { priceId, quantity }: Pick<PlanChange, 'priceId' | 'quantity'>,
  ): Promise<OrderedItem | null> => {
    const itemId = idOf(item);
    const isSamePrice = idOf(item['price']) === priceId;
    if (!isSamePrice && !plans.isForSale(priceId)) throw billingErrors.PRICE_NOT_ALLOWED();
    const price = isSamePrice ? asObject(item['price']) : await requireGateway().price(priceId);
    if (!isSamePrice) requireSellable(price, subscription);
    const startsPeriod =
      itemId !== undefined && !isSamePrice && isInvoicedApart(asObject(item['price']), asObject(price));
    if (asObject(price?.['recurring'])['usage_type'] === 'metered') {
      if (quantity !== undefined)
        throw invalidFields({ path: 'quantity', message: 'must be absent: the price is charged by usage' });
      return isSamePrice ? null : defined({ itemId, priceId, startsPeriod });
    }
    const present = asInteger(item['quantity']);
    const wanted = (await seats.quantityOf(ownerId, priceId, quantity, present)) ?? present ?? 1;
    if (isSamePrice && wanted === present) return null;
    requireQuantity(wanted, plans.checkoutOf(priceId).quantity);
    return defined({ itemId, priceId, quantity: wanted, startsPeriod });
  };

  /** The change of the main item to an order; null if nothing differs. */
  const itemChange = (subscription: Json, stored: SubscriptionDocument, order: PlanChange) => {
    const item = mainItemOf(subscription, stored);
    if (idOf(item) === undefined) throw billingErrors.SUBSCRIPTION_NOT_CHANGEABLE();
    return changeOf(item, subscription, stored.ownerId, order);
  };

  /**
   * The end of what is scheduled or awaits a payment; null if nothing does.
   * @throws SUBSCRIPTION_NOT_CHANGEABLE for a schedule that the seller has made
   */
  const undoing = (subscription: Json, stored: SubscriptionDocument): SubscriptionChange | null => {
    const invoiceId = idOf(subscription['latest_invoice']);
    if (asObject(subscription['pending_update'])['expires_at'] !== undefined && invoiceId !== undefined)
      return { kind: 'void', invoiceId };
    const scheduleId = idOf(subscription['schedule']);
    if (scheduleId === undefined) return null;
    const mainItem = mainItemOf(subscription, stored);
    if (!isOrderedByUser(subscription, mainItem, { plans, now: clock.now() }))
      throw billingErrors.SUBSCRIPTION_NOT_CHANGEABLE({ message: AGREED });
    return { kind: 'release', scheduleId };
  };

  /** The independent plan of a price. @throws PRICE_NOT_ALLOWED */
  const addOnOf = (priceId: string): string => {
    const plan = plans.configured?.get(priceId);
    if (plan !== undefined && plans.isIndependent(plan) && !plans.isPurchase(plan)) return plan;
    throw billingErrors.PRICE_NOT_ALLOWED({ message: NO_ADD_ON });
  };

  /** The item of an add-on in the subscription of the plan, which can have another price of it. */
  const addOnItem = (subscription: Json, stored: SubscriptionDocument, plan: string): Json | undefined => {
    const mainItem = mainItemOf(subscription, stored);
    return asList(asObject(subscription['items'])['data']).find(
      (item) => idOf(item) !== idOf(mainItem) && plans.configured?.get(idOf(item['price']) ?? '') === plan,
    );
  };

  return {
    select,
    mainItemOf,
    itemChange,
    addOnOf,

    /** What adds an add-on or changes it; null if nothing differs. @throws ALREADY_SUBSCRIBED if it is a subscription of its own */
    async addOnChange(
      subscription: Json,
      stored: SubscriptionDocument,
      order: AddOnOrder,
    ): Promise<OrderedItem | null> {
      const plan = addOnOf(order.priceId);
      const held = await holdings.listBought(stored.ownerId);
      if (held.some((one) => one.family === plan && isRunning(one))) throw billingErrors.ALREADY_SUBSCRIBED();
      return changeOf(addOnItem(subscription, stored, plan) ?? {}, subscription, stored.ownerId, order);
    },

    addOnItem,
    undoing,

    /** The change to the item at the end of the period; null if it is scheduled already. */
    scheduling(
      subscription: Json,
      stored: SubscriptionDocument,
      item: ItemChange,
    ): SubscriptionChange | null {
      const mainItem = mainItemOf(subscription, stored);
      if (endsWithPeriod(subscription, mainItem))
        throw billingErrors.SUBSCRIPTION_NOT_CHANGEABLE({
          message: 'The subscription ends with its period. Resume it first.',
        });
      const items = itemsWith(subscription, item);
      const at = periodEndOf(subscription, mainItem);
      const undo = undoing(subscription, stored);
      const scheduled = readNextPhase(asObject(subscription['schedule']), clock.now());
      return isDeepStrictEqual(scheduled, { at, items }) ? null : (undo ?? { kind: 'schedule', items, at });
    },

    /** Without one, a subscription whose trial has ended remains paused. @throws PAYMENT_METHOD_REQUIRED */
    async requirePaymentMethod(subscription: Json): Promise<void> {
      if (!isTrialPause(readPauseReason(subscription['status_details']))) return;
      const own = idOf(subscription['default_payment_method'] ?? subscription['default_source']);
      const customerId = asText(subscription['customer']);
      if (own !== undefined || customerId === undefined) return;
      if (!(await requireGateway().hasPaymentMethod(customerId)))
        throw billingErrors.PAYMENT_METHOD_REQUIRED();
    },
  };
}

/** Those that match; all if none does. */
function preferred<T>(all: readonly T[], matches: (one: T) => boolean): readonly T[] {
  const matching = all.filter(matches);
  return matching.length > 0 ? matching : all;
}

/** Whether an update of the subscription to the item awaits its payment. */
export const isPending = (subscription: Json, { itemId, priceId, quantity }: ItemChange): boolean =>
  asList(asObject(subscription['pending_update'])['subscription_items']).some(
    (item) =>
      idOf(item) === itemId && idOf(item['price']) === priceId && asInteger(item['quantity']) === quantity,
  );

/** The items of a subscription after a change. */
const itemsWith = (subscription: Json, { itemId, priceId, quantity }: ItemChange): SubscriptionItem[] =>
  asList(asObject(subscription['items'])['data']).flatMap((item) =>
    idOf(item) === itemId ? [defined({ priceId, quantity })] : (readItems([item]) ?? []),
  );

/** Whether the provider starts a period when a price replaces another one: with another interval, and after a free one. */
function isInvoicedApart(before: Json, after: Json): boolean {
  const intervalOf = ({ recurring }: Json) => {
    const { interval, interval_count = 1 } = asObject(recurring);
    return `${interval_count} ${interval}`;
  };
  return intervalOf(before) !== intervalOf(after) || before['unit_amount'] === 0;
}

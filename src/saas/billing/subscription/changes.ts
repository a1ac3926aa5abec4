import type { ActingProgram } from '../../../core/http/identity.js';
import { toTimestamp, toTimestampOrNull } from '../../../core/http/schemas.js';
import { invalidFields } from '../../../core/kernel/errors.js';
import type { BillingContext } from '../context.js';
import { billingErrors, isPaymentDeclined } from '../errors.js';
import { type Holding, type Holdings, hasPrice, isRunning } from '../holdings.js';
import type { Gateway } from '../provider/gateway.js';
import { asInteger, asList, asObject, asText, asTime, idOf, type Json } from '../provider/json.js';
import type { ItemChange, SubscriptionChange } from '../provider/subscription-changes.js';
import type { ChangePreview, Subscription } from '../schemas.js';
import { isTerminal, type SubscriptionDocument } from '../store.js';
import {
  CANCELLABLE_LATER,
  endsWithPeriod,
  isCollectionPaused,
  PAUSABLE,
  RESUMABLE,
  requireChangeable,
  requireOrder,
  requireQuantity,
  requireSellable,
  requireStatus,
  statusOf,
} from './change-rules.js';
import type { SubscriptionService } from './service.js';
import { findMainItem } from './snapshot.js';
import type { SubscriptionSync } from './sync.js';
import type { SubscriptionWriter } from './writer.js';

/**
 * Changes of a user's subscription. The state at the provider decides what remains to be done, so a repeated request has
 * no further effect. `subscriptionId` is required if the user has several subscriptions.
 *
 * @throws BILLING_NOT_CONFIGURED, VALIDATION_ERROR, SUBSCRIPTION_NOT_FOUND, SUBSCRIPTION_NOT_CHANGEABLE,
 *   PAYMENT_PROVIDER_ERROR
 * @param ip from where the change is made, and `actor`, which program makes it for the user: for the audit
 */
export type SubscriptionChanges = ReturnType<typeof createSubscriptionChanges>;

/** Which subscription; default: the only one that can be changed. */
export interface Target {
  /** At the payment provider. */
  subscriptionId?: string;
}

/** Another price or quantity of a subscription. */
export interface PlanChange extends Target {
  /** At the payment provider. */
  priceId: string;
  /** Default: the present quantity. Metered prices have none. */
  quantity?: number;
}

/** The end of a subscription. */
export interface Cancellation extends Target {
  /** Default: `period_end`. */
  when?: 'period_end' | 'now';
}

export interface SubscriptionChangeDependencies {
  writer: SubscriptionWriter;
  holdings: Holdings;
  subscription: SubscriptionService;
  /** Absent while no API key is configured. */
  sync: SubscriptionSync | undefined;
}

/** The change that a subscription at the provider still needs; null if there is none. */
type NextChange = (
  subscription: Json,
  stored: SubscriptionDocument,
) => Promise<SubscriptionChange | null> | SubscriptionChange | null;

/** Longer than a change takes: if the process is killed meanwhile, a background job syncs the subscription. */
const SYNC_DELAY_MS = 30_000;

const OTHER_FAMILY =
  'This price belongs to another plan, which is held beside this subscription. Buy it at checkout instead.';

/** The API key belongs to another account or mode, or test data was deleted there. The log of the background job names it. */
const MISSING =
  'The payment provider has no such subscription, so it cannot be changed. Contact the support of this site.';

export function createSubscriptionChanges(
  { subscriptions, plans, audit, gateway }: BillingContext,
  { writer, holdings, subscription: service, sync }: SubscriptionChangeDependencies,
) {
  const provider = () => {
    if (!gateway || !sync) throw billingErrors.BILLING_NOT_CONFIGURED();
    return { gateway, sync };
  };

  /**
   * The subscription that a request is about: the named one, otherwise the only one that runs, a usable one before one whose first
   * payment is missing, and plans of this product before others. An order can replace what has its price and what is of the same family.
   */
  const select = async (userId: string, { subscriptionId, priceId }: Target & { priceId?: string }) => {
    const held = (await holdings.listBought(userId)).filter(({ subscription }) => subscription);
    const family = priceId === undefined ? undefined : plans.familyOfPrice(priceId);
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

  const fetch = async (gateway: Gateway, id: string) => {
    const found = await gateway.subscription(id);
    if (!found) throw billingErrors.SUBSCRIPTION_NOT_CHANGEABLE({ message: MISSING });
    return found;
  };

  /** Makes the changes that the subscription needs, and stores the responses of the provider. */
  const perform = async (
    userId: string,
    target: Target,
    { ip, actor }: { ip: string; actor: ActingProgram | undefined },
    next: NextChange,
    describe: Describe,
  ): Promise<Subscription> => {
    const { gateway, sync } = provider();
    let stored = await select(userId, target);
    const { id } = stored;
    const reread = async () => {
      const again = await subscriptions.findOne({ id });
      if (!again) throw billingErrors.SUBSCRIPTION_NOT_FOUND();
      return again;
    };

    const made = new Set<SubscriptionChange['kind']>();
    let state = await fetch(gateway, id);
    for (;;) {
      const change = await next(state.object, stored);
      if (!change || made.has(change.kind)) break;
      // Read before the request, so that its response is newer; the background job repairs what a crash leaves.
      let marked = await writer.requestReconcile(stored, SYNC_DELAY_MS);
      while (!marked) marked = await writer.requestReconcile(await reread(), SYNC_DELAY_MS);
      const { event, detail } = describe(change, findMainItem(state.object, plans, stored));
      state = await gateway.changeSubscription(id, change).catch(async (error: unknown) => {
        const current = isPaymentDeclined(error) ? null : await fetch(gateway, id).catch(() => null);
        // A parallel request may have made the same change.
        if (current && (await remains(() => next(current.object, marked), made, change)) === null)
          return current;
        if (current) await sync.apply(marked, current);
        throw error;
      });
      made.add(change.kind);
      const by = { ip, ...(actor && { actor }) };
      const record = audit.entry({ event, subject: userId, ...by, detail: `${id} ${detail}`.trim() });
      stored = (await sync.apply(marked, state, { actor, record })).after;
    }
    if (made.size === 0) await sync.apply(stored, state);
    return service.current(userId);
  };

  /** The change of the main item to an order; null if nothing differs. */
  const itemChange = async (
    subscription: Json,
    stored: SubscriptionDocument,
    { priceId, quantity }: PlanChange,
  ): Promise<ItemChange | null> => {
    const item = findMainItem(subscription, plans, stored);
    const itemId = idOf(item);
    if (itemId === undefined) throw billingErrors.SUBSCRIPTION_NOT_CHANGEABLE();
    const isSamePrice = idOf(item['price']) === priceId;
    if (!isSamePrice && !plans.isForSale(priceId)) throw billingErrors.PRICE_NOT_ALLOWED();
    const price = isSamePrice ? asObject(item['price']) : await provider().gateway.price(priceId);
    if (!isSamePrice) requireSellable(price, subscription);
    if (asObject(price?.['recurring'])['usage_type'] === 'metered') {
      if (quantity !== undefined)
        throw invalidFields({ path: 'quantity', message: 'must be absent: the price is charged by usage' });
      return isSamePrice ? null : { itemId, priceId };
    }
    const present = asInteger(item['quantity']);
    const wanted = quantity ?? present ?? 1;
    if (isSamePrice && wanted === present) return null;
    requireQuantity(wanted, plans.checkoutOf(priceId).quantity);
    return { itemId, priceId, quantity: wanted };
  };

  return {
    /**
     * Changes the price of the main item, its quantity, or both. Other items stay.
     * @throws PRICE_NOT_ALLOWED, CURRENCY_MISMATCH, PAYMENT_DECLINED
     */
    async change(
      userId: string,
      order: PlanChange,
      ip: string = 'local',
      actor?: ActingProgram,
    ): Promise<Subscription> {
      requireOrder(order);
      const next: NextChange = async (subscription, stored) => {
        requireChangeable(subscription);
        const item = await itemChange(subscription, stored, order);
        return item && { kind: 'item', item };
      };
      return perform(userId, order, { ip, actor }, next, (_change, item) => ({
        event: 'subscription.changed',
        detail: `${shownItem(item)} to ${order.priceId}${shownQuantity(order.quantity)}`,
      }));
    },

    /** What `change` would charge now. Changes nothing. @throws PRICE_NOT_ALLOWED, CURRENCY_MISMATCH */
    async preview(userId: string, order: PlanChange): Promise<ChangePreview> {
      requireOrder(order);
      const { gateway } = provider();
      const stored = await select(userId, order);
      const { id, currentPeriodEnd } = stored;
      const { object } = await fetch(gateway, id);
      requireChangeable(object);
      const item = await itemChange(object, stored, order);
      const invoice = item && (await gateway.previewChange(id, item));
      return previewView(
        object,
        invoice,
        endsWithPeriod(object, findMainItem(object, plans, stored)) ? undefined : currentPeriodEnd,
      );
    },

    /** Ends a subscription, by default with its period. */
    async cancel(
      userId: string,
      { when = 'period_end', ...target }: Cancellation = {},
      ip: string = 'local',
      actor?: ActingProgram,
    ): Promise<Subscription> {
      if (when !== 'period_end' && when !== 'now')
        throw invalidFields({ path: 'when', message: 'must be period_end or now' });
      const next: NextChange = (subscription, stored) => {
        if (isTerminal(statusOf(subscription))) return null;
        if (when === 'now') return { kind: 'cancel-now' };
        requireStatus(subscription, CANCELLABLE_LATER);
        return endsWithPeriod(subscription, findMainItem(subscription, plans, stored))
          ? null
          : { kind: 'cancel-at-period-end' };
      };
      return perform(userId, target, { ip, actor }, next, () => ({
        event: 'subscription.canceled',
        detail: when === 'now' ? 'now' : 'at the end of the period',
      }));
    },

    /** Takes back a cancellation at the end of the period, and ends a pause. @throws PAYMENT_DECLINED */
    async resume(
      userId: string,
      target: Target = {},
      ip: string = 'local',
      actor?: ActingProgram,
    ): Promise<Subscription> {
      const next: NextChange = (subscription, stored) => {
        requireStatus(subscription, RESUMABLE);
        if (subscription['cancel_at_period_end'] === true) return { kind: 'keep' };
        if (endsWithPeriod(subscription, findMainItem(subscription, plans, stored)))
          return { kind: 'clear-cancel-at' };
        if (isCollectionPaused(subscription)) return { kind: 'collect' };
        return statusOf(subscription) === 'paused' ? { kind: 'resume' } : null;
      };
      return perform(userId, target, { ip, actor }, next, () => ({
        event: 'subscription.resumed',
        detail: '',
      }));
    },

    /** Pauses the collection of payments until `resume`. */
    async pause(
      userId: string,
      target: Target = {},
      ip: string = 'local',
      actor?: ActingProgram,
    ): Promise<Subscription> {
      const next: NextChange = (subscription) => {
        if (statusOf(subscription) === 'paused' || isCollectionPaused(subscription)) return null;
        requireStatus(subscription, PAUSABLE);
        return { kind: 'pause-collection' };
      };
      return perform(userId, target, { ip, actor }, next, () => ({
        event: 'subscription.paused',
        detail: '',
      }));
    },
  };
}

/** Those that match; all if none does. */
function preferred<T>(all: readonly T[], matches: (one: T) => boolean): readonly T[] {
  const matching = all.filter(matches);
  return matching.length > 0 ? matching : all;
}

/** The audit record of a change. @param item the main item before it */
type Describe = (change: SubscriptionChange, item: Json) => { event: string; detail: string };

/** The change that remains after a failed one; the error of a forbidden state counts as one that remains. */
async function remains(
  next: () => ReturnType<NextChange>,
  made: ReadonlySet<string>,
  failed: SubscriptionChange,
): Promise<SubscriptionChange | null> {
  try {
    const change = await next();
    return change && made.has(change.kind) ? null : change;
  } catch {
    return failed;
  }
}

const shownQuantity = (quantity: number | undefined) => (quantity === undefined ? '' : ` × ${quantity}`);

const shownItem = (item: Json): string =>
  `${idOf(item['price']) ?? 'no price'}${shownQuantity(asInteger(item['quantity']))}`;

/**
 * @param invoice that the change causes; null if it causes none
 * @param periodEnd the end of the present period; absent if no further one follows
 */
function previewView(subscription: Json, invoice: Json | null, periodEnd: number | undefined): ChangePreview {
  const lines = asList(asObject(invoice?.['lines'])['data']);
  const ends = lines.flatMap((line) => asTime(asObject(line['period'])['end']) ?? []);
  return {
    amountDue: asInteger(invoice?.['amount_due']) ?? 0,
    total: asInteger(invoice?.['total']) ?? 0,
    currency: asText(invoice?.['currency']) ?? asText(subscription['currency']) ?? null,
    lines: lines.map(lineView),
    nextChargeAt: periodEnd === undefined ? null : toTimestamp(Math.max(periodEnd, ...ends)),
  };
}

function lineView(line: Json): ChangePreview['lines'][number] {
  const period = asObject(line['period']);
  return {
    description: asText(line['description']) ?? null,
    amount: asInteger(line['amount']) ?? 0,
    quantity: asInteger(line['quantity']) ?? null,
    periodStart: toTimestampOrNull(asTime(period['start'])),
    periodEnd: toTimestampOrNull(asTime(period['end'])),
  };
}

import type { ActingProgram } from '../../../core/http/identity.js';
import { invalidFields } from '../../../core/kernel/errors.js';
import type { BillingContext } from '../context.js';
import { billingErrors, isPaymentDeclined } from '../errors.js';
import type { Holdings } from '../holdings.js';
import type { Gateway } from '../provider/gateway.js';
import { asInteger, asObject, idOf, type Json } from '../provider/json.js';
import { PRORATIONS, type SubscriptionChange } from '../provider/subscription-changes.js';
import type { ChangePreview, Subscription } from '../schemas.js';
import { isTerminal, type SubscriptionDocument } from '../store.js';
import {
  CANCELLABLE_LATER,
  endsWithPeriod,
  hasMixedPeriods,
  isCollectionPaused,
  isFlexible,
  PAUSABLE,
  periodEndOf,
  RESUMABLE,
  requireChangeable,
  requireOrder,
  requireStatus,
  statusOf,
} from './change-rules.js';
import { createOrders, isPending, type PlanChange, type Target } from './orders.js';
import { previewView } from './previews.js';
import type { SubscriptionService } from './service.js';
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

/** https://docs.stripe.com/billing/subscriptions/billing-mode */
const CLASSIC =
  'This subscription has the classic billing mode, in which the payment provider pauses none. Contact the support of this site.';

/** The API key belongs to another account or mode, or test data was deleted there. The log of the background job names it. */
const MISSING =
  'The payment provider has no such subscription, so it cannot be changed. Contact the support of this site.';

export function createSubscriptionChanges(
  context: BillingContext,
  { writer, holdings, subscription: service, sync }: SubscriptionChangeDependencies,
) {
  const { subscriptions, audit, gateway, config } = context;
  const orders = createOrders(context, holdings);
  const { mainItemOf, undoing } = orders;
  const prorationOf = ({ proration = config.billingProration ?? 'always_invoice' }: PlanChange) => {
    requireOneOf('proration', proration, PRORATIONS);
    return proration;
  };

  const provider = () => {
    if (!gateway || !sync) throw billingErrors.BILLING_NOT_CONFIGURED();
    return { gateway, sync };
  };

  const fetch = async (gateway: Gateway, id: string) => {
    const found = await gateway.subscription(id);
    if (!found) throw billingErrors.SUBSCRIPTION_NOT_CHANGEABLE({ message: MISSING });
    const scheduleId = idOf(found.object['schedule']);
    const schedule = scheduleId === undefined ? null : await gateway.schedule(scheduleId);
    return schedule ? { ...found, object: { ...found.object, schedule } } : found;
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
    let stored = await orders.select(userId, target);
    const { id } = stored;
    const reread = async () => {
      const again = await subscriptions.findOne({ id });
      if (!again) throw billingErrors.SUBSCRIPTION_NOT_FOUND();
      return again;
    };

    const made = new Set<SubscriptionChange['kind']>();
    let releasedChange: Subscription['releasedChange'] = null;
    let state = await fetch(gateway, id);
    for (;;) {
      const change = await next(state.object, stored);
      if (!change || made.has(change.kind)) break;
      // Read before the request, so that its response is newer; the background job repairs what a crash leaves.
      let marked = await writer.requestReconcile(stored, SYNC_DELAY_MS);
      while (!marked) marked = await writer.requestReconcile(await reread(), SYNC_DELAY_MS);
      const isUndone = change.kind === 'release' || change.kind === 'void';
      const { event, detail } = isUndone ? UNDONE : describe(mainItemOf(state.object, stored));
      if (isUndone) releasedChange = service.scheduledChange(stored, asObject(state.object['schedule']));
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
    return { ...(await service.current(userId)), releasedChange };
  };

  return {
    /**
     * Changes the price of the main item, its quantity, or both, and ends a change that was scheduled before. Other items stay.
     * @throws PRICE_NOT_ALLOWED, CURRENCY_MISMATCH, PAYMENT_DECLINED
     */
    async change(
      userId: string,
      order: PlanChange,
      ip: string = 'local',
      actor?: ActingProgram,
    ): Promise<Subscription> {
      const { when = 'now', priceId, quantity } = order;
      requireOrder(order);
      requireOneOf('when', when, ['now', 'period_end']);
      const proration = prorationOf(order);
      const next: NextChange = async (subscription, stored) => {
        requireChangeable(subscription);
        const item = await orders.itemChange(subscription, stored, order);
        if (!item) return null;
        if (when === 'period_end') return orders.scheduling(subscription, stored, item);
        if (isPending(subscription, item)) return null;
        return undoing(subscription, stored) ?? { kind: 'item', item, proration };
      };
      return perform(userId, order, { ip, actor }, next, (item) => ({
        event: 'subscription.changed',
        detail: `${shownItem(item)} to ${priceId}${shownQuantity(quantity)}${when === 'now' ? '' : ' at the end of the period'}`,
      }));
    },

    /** Ends a scheduled change, or one that awaits its payment. Does nothing if there is none. */
    undoChange: async (
      userId: string,
      target: Target = {},
      ip: string = 'local',
      actor?: ActingProgram,
    ): Promise<Subscription> => perform(userId, target, { ip, actor }, undoing, () => UNDONE),

    /** What `change` would charge now. Changes nothing. @throws PRICE_NOT_ALLOWED, CURRENCY_MISMATCH */
    async preview(userId: string, order: PlanChange): Promise<ChangePreview> {
      requireOrder(order);
      const proration = prorationOf(order);
      const { gateway } = provider();
      const stored = await orders.select(userId, order);
      const { id, currentPeriodEnd } = stored;
      const { object } = await fetch(gateway, id);
      requireChangeable(object);
      const item = await orders.itemChange(object, stored, order);
      const isInvoiced =
        order.when !== 'period_end' && (proration === 'always_invoice' || item?.startsPeriod);
      const invoice = item && isInvoiced ? await gateway.previewChange(id, item, proration) : null;
      const isEnding = endsWithPeriod(object, mainItemOf(object, stored));
      return previewView(object, invoice, isEnding ? undefined : currentPeriodEnd);
    },

    /** Ends a subscription, by default with the period of its main item, and what is scheduled. */
    async cancel(
      userId: string,
      { when = 'period_end', ...target }: Cancellation = {},
      ip: string = 'local',
      actor?: ActingProgram,
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
      return perform(userId, target, { ip, actor }, next, () => ({
        event: 'subscription.canceled',
        detail: when === 'now' ? 'now' : 'at the end of the period',
      }));
    },

    /**
     * Takes back a cancellation at the end of the period, and ends a pause, which starts a period and collects its payment.
     * @throws PAYMENT_DECLINED, PAYMENT_METHOD_REQUIRED
     */
    async resume(
      userId: string,
      target: Target = {},
      ip: string = 'local',
      actor?: ActingProgram,
    ): Promise<Subscription> {
      const next: NextChange = async (subscription, stored) => {
        requireStatus(subscription, RESUMABLE);
        const isScheduled = subscription['cancel_at_period_end'] === true;
        if (isScheduled || endsWithPeriod(subscription, mainItemOf(subscription, stored)))
          return undoing(subscription, stored) ?? { kind: isScheduled ? 'keep' : 'clear-cancel-at' };
        if (isCollectionPaused(subscription)) return { kind: 'collect' };
        if (statusOf(subscription) !== 'paused') return null;
        await orders.requirePaymentMethod(subscription);
        return { kind: 'resume' };
      };
      return perform(userId, target, { ip, actor }, next, () => ({
        event: 'subscription.resumed',
        detail: '',
      }));
    },

    /** Until `resume`, the subscription has no periods, invoices and access. Ends what is scheduled. */
    async pause(
      userId: string,
      target: Target = {},
      ip: string = 'local',
      actor?: ActingProgram,
    ): Promise<Subscription> {
      const next: NextChange = (subscription, stored) => {
        if (statusOf(subscription) === 'paused' || isCollectionPaused(subscription)) return null;
        requireStatus(subscription, PAUSABLE);
        if (!isFlexible(subscription)) throw billingErrors.SUBSCRIPTION_NOT_CHANGEABLE({ message: CLASSIC });
        return undoing(subscription, stored) ?? { kind: 'pause' };
      };
      return perform(userId, target, { ip, actor }, next, () => ({
        event: 'subscription.paused',
        detail: '',
      }));
    },
  };
}

/** The audit record of a change. @param item the main item before it */
type Describe = (item: Json) => { event: string; detail: string };

const UNDONE = { event: 'subscription.changed', detail: 'scheduled change undone' };

/** Validates at run time, because callers on the server may not use TypeScript. */
function requireOneOf(path: string, value: string, accepted: readonly string[]): void {
  if (!accepted.includes(value))
    throw invalidFields({
      path,
      message: `must be ${accepted.slice(0, -1).join(', ')} or ${accepted.at(-1)}`,
    });
}

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

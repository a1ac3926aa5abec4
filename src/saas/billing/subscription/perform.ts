import type { ActingProgram } from '../../../core/http/identity.js';
import type { BillingContext } from '../context.js';
import { billingErrors, isPaymentDeclined } from '../errors.js';
import type { Gateway } from '../provider/gateway.js';
import { asObject, idOf, type Json } from '../provider/json.js';
import type { SubscriptionChange } from '../provider/subscription-changes.js';
import type { Subscription } from '../schemas.js';
import type { SubscriptionDocument } from '../store.js';
import type { Orders, Target } from './orders.js';
import type { SubscriptionService } from './service.js';
import type { SubscriptionSync } from './sync.js';
import type { SubscriptionWriter } from './writer.js';

/** Makes changes of a subscription at the provider until nothing remains to be done. */

/** The change that a subscription at the provider still needs; null if there is none. */
export type NextChange = (
  subscription: Json,
  stored: SubscriptionDocument,
) => Promise<SubscriptionChange | null> | SubscriptionChange | null;

/** Longer than a change takes: if the process is killed meanwhile, a background job syncs the subscription. */
const SYNC_DELAY_MS = 30_000;

/** The API key belongs to another account or mode, or test data was deleted there. The log of the background job names it. */
const MISSING =
  'The payment provider has no such subscription, so it cannot be changed. Contact the support of this site.';

export interface PerformDependencies {
  writer: SubscriptionWriter;
  orders: Orders;
  subscription: SubscriptionService;
  /** Absent while no API key is configured. */
  sync: SubscriptionSync | undefined;
}

export function createPerform(
  { subscriptions, audit, gateway }: BillingContext,
  { writer, orders, subscription: service, sync }: PerformDependencies,
) {
  const { mainItemOf } = orders;
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

  return { provider, fetch, perform };
}

/** The audit record of a change. @param item the main item before it */
type Describe = (item: Json) => { event: string; detail: string };

export const UNDONE = { event: 'subscription.changed', detail: 'scheduled change undone' };

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

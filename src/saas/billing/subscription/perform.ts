import type { ActingProgram } from '../../../core/http/identity.js';
import { defined } from '../../../core/kernel/fields.js';
import type { BillingContext } from '../context.js';
import { billingErrors, isPaymentDeclined } from '../errors.js';
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

/**
 * From where a change is made, by which program if it acts for the user, and by which operator if one makes it: for the audit. Default:
 * this server.
 */
export type ChangedBy = [ip?: string, actor?: ActingProgram | undefined, operator?: string];

/** Longer than a change takes: if the process is killed meanwhile, a background job syncs the subscription. */
const SYNC_DELAY_MS = 30_000;

/** The API key belongs to another account or mode, or test data was deleted there. The log of the background job names it. */
const MISSING =
  'The payment provider has no such subscription, so it cannot be changed. Contact the support of this site.';

/** A change that a user, or a program for the user, has requested. */
interface RequestedChange {
  ownerId: string;
  target: Target & { priceId?: string; family?: string };
  by: ChangedBy;
  next: NextChange;
  /** The name of its audit record. */
  event: string;
  /** The details of that. @param item the main item before the change */
  describe?(item: Json): string;
}

export const UNDONE = { event: 'subscription.changed', describe: () => 'scheduled change undone' };

export interface PerformDependencies {
  writer: SubscriptionWriter;
  orders: Orders;
  subscription: SubscriptionService;
  sync: SubscriptionSync;
}

export function createPerform(
  { subscriptions, audit, requireGateway }: BillingContext,
  { writer, orders, subscription: service, sync }: PerformDependencies,
) {
  const fetch = async (id: string) => {
    const gateway = requireGateway();
    const found = await gateway.subscription(id);
    if (!found) throw billingErrors.SUBSCRIPTION_NOT_CHANGEABLE({ message: MISSING });
    const scheduleId = idOf(found.object['schedule']);
    const schedule = scheduleId === undefined ? null : await gateway.schedule(scheduleId);
    return schedule ? { ...found, object: { ...found.object, schedule } } : found;
  };

  /** Makes the changes that the subscription needs, and stores the responses of the provider. */
  const perform = async ({ ownerId, target, by, next, ...named }: RequestedChange): Promise<Subscription> => {
    const [ip = 'local', actor, operator] = by;
    const gateway = requireGateway();
    let stored = await orders.select(ownerId, target);
    const { id } = stored;
    const reread = async () => {
      const again = await subscriptions.findOne({ id });
      if (!again) throw billingErrors.SUBSCRIPTION_NOT_FOUND();
      return again;
    };

    const made = new Set<SubscriptionChange['kind']>();
    let releasedChange: Subscription['releasedChange'] = null;
    let state = await fetch(id);
    for (;;) {
      const change = await next(state.object, stored);
      if (!change || made.has(change.kind)) break;
      // Read before the request, so that its response is newer; the background job repairs what a crash leaves.
      let marked = await writer.requestReconcile(stored, SYNC_DELAY_MS);
      while (!marked) marked = await writer.requestReconcile(await reread(), SYNC_DELAY_MS);
      const isUndone = change.kind === 'release' || change.kind === 'void';
      const { event, describe = () => '' } = isUndone ? UNDONE : named;
      const detail = `${id} ${describe(orders.mainItemOf(state.object, stored))}`.trim();
      if (isUndone) releasedChange = service.scheduledChange(stored, asObject(state.object['schedule']));
      state = await gateway.changeSubscription(id, change).catch(async (error: unknown) => {
        const current = isPaymentDeclined(error) ? null : await fetch(id).catch(() => null);
        // A parallel request may have made the same change.
        if (current && (await remains(() => next(current.object, marked), made, change)) === null)
          return current;
        if (current) await sync.apply(marked, current);
        throw error;
      });
      made.add(change.kind);
      const who = { ip, ...defined({ actor, by: operator }) };
      const record = audit.entry({ event, subject: ownerId, ...who, detail });
      stored = (await sync.apply(marked, state, { actor, record })).after;
    }
    if (made.size === 0) await sync.apply(stored, state);
    return { ...(await service.current(ownerId)), releasedChange };
  };

  return { fetch, perform };
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

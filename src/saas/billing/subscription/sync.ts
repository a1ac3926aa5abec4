import type { ActingProgram } from '../../../core/http/identity.js';
import type { BillingContext, CommitPart } from '../context.js';
import { isCustomerMissing, subscriptionNotFound } from '../errors.js';
import { haveSameProjection, type Projector } from '../projection.js';
import { idOf, type Json } from '../provider/json.js';
import { isTerminal, listSubscriptions, type SubscriptionDocument } from '../store.js';
import { readSnapshot } from './snapshot.js';
import {
  changedFields,
  estimatePastDueSince,
  type SubscriptionKey,
  type SubscriptionWriter,
} from './writer.js';

/**
 * Copies the state of subscriptions from the provider. Parallel requests for the same subscriptions share a request to
 * the provider; otherwise, each write would conflict with the others. Without an API key, each throws BILLING_NOT_CONFIGURED.
 */
export type SubscriptionSync = ReturnType<typeof createSubscriptionSync>;

/** A subscription before and after a sync; `before` is absent if it was not stored. */
export interface SyncedSubscription {
  id: string;
  before?: SubscriptionDocument;
  after: SubscriptionDocument;
  /** Names of the changed fields: `status`, `currentPeriodEnd`, … */
  fields: string[];
}

/** A subscription at the provider, and the provider's time up to which it is complete. */
export interface FetchedSubscription {
  object: Json;
  asOf: number;
}

/** A change that was made at the provider for a user. */
export interface SyncedChange {
  /** The program that has made it, for the event. */
  actor?: ActingProgram | undefined;
  /** The record of the audit, which is stored with the new state. */
  record?: CommitPart;
}

export function createSubscriptionSync(
  { subscriptions, owners, plans, commit, tryCommit, clock, requireGateway }: BillingContext,
  { writer, projector }: { writer: SubscriptionWriter; projector: Projector },
) {
  const merge = (
    stored: SubscriptionDocument | null,
    key: SubscriptionKey,
    { object, asOf: at }: FetchedSubscription,
    isChangeAnswered = false,
  ): SyncedSubscription => {
    const snapshot = readSnapshot(object, plans, stored);
    const since = estimatePastDueSince(stored, snapshot, at);
    const update = { snapshot, at, statusAt: at, ...since, isUncertain: false, isChangeAnswered };
    const after = writer.merge(stored, key, update);
    return { id: key.id, ...(stored && { before: stored }), after, fields: changedFields(stored, after) };
  };

  /** Writes a state that was fetched after `stored` was read; null if a concurrent write came first. */
  const write = async (
    stored: SubscriptionDocument | null,
    key: SubscriptionKey,
    fetched: FetchedSubscription,
    { actor, record }: SyncedChange = {},
  ): Promise<SyncedSubscription | null> => {
    const synced = merge(stored, key, fetched, record !== undefined);
    const { after, fields } = synced;
    const parts: CommitPart[] = [writer.writing(stored, after), record];
    if (!stored || !haveSameProjection(stored, after)) {
      const user = await owners.find(after.ownerId);
      if (!user || user.isBeingDeleted) {
        if (record) await commit([record]);
        return { id: after.id, after, fields: [] };
      }
      parts.push(...(await projector.projecting(user, { subscription: after })));
    }
    if (fields.length > 0) {
      const id = `refresh:${after.id}:${after.rev}`;
      parts.push(await writer.announcing(id, after, { at: clock.now(), actor }));
    }
    return (await tryCommit(parts)) ? synced : null;
  };

  /** The customers' subscriptions and the stored ones that the lists lack, without those that are stored as ended. */
  const fetchAll = async (
    customerIds: readonly string[],
    storedById: ReadonlyMap<string | undefined, SubscriptionDocument>,
  ): Promise<FetchedSubscription[]> => {
    const hasEnded = (id: string | undefined) => isTerminal(storedById.get(id)?.status ?? '');
    const gateway = requireGateway();
    let missing: unknown;
    const fetched: FetchedSubscription[] = [];
    for (const customerId of customerIds) {
      const { objects, asOf } = await gateway.subscriptionsOf(customerId).catch((error: unknown) => {
        if (!isCustomerMissing(error)) throw error;
        missing = error;
        return { objects: [], asOf: 0 };
      });
      fetched.push(...objects.map((object) => ({ object, asOf })));
    }
    const listed = new Set(fetched.map(({ object }) => idOf(object)));
    for (const { id } of storedById.values()) {
      const found = listed.has(id) || hasEnded(id) ? null : await gateway.subscription(id);
      if (found) fetched.push(found);
    }
    const current = fetched.filter(({ object }) => !hasEnded(idOf(object)));
    if (missing !== undefined && current.length === 0) throw missing;
    return current;
  };

  const runOne = async (id: string, ownerId: string, change?: SyncedChange): Promise<SyncedSubscription> => {
    for (;;) {
      const stored = await subscriptions.findOne({ id });
      if (stored && isTerminal(stored.status)) {
        if (change?.record) await commit([change.record]);
        return { id, before: stored, after: stored, fields: [] };
      }
      const key = { id, ownerId: stored?.ownerId ?? ownerId };
      const fetched = await requireGateway().subscription(id);
      if (!fetched) throw subscriptionNotFound();
      const synced = await write(stored, key, fetched, change);
      if (synced) return synced;
    }
  };

  const runAll = async (
    customerIds: readonly string[],
    ownerId: string,
    dryRun: boolean,
  ): Promise<SyncedSubscription[]> => {
    const all = await listSubscriptions(subscriptions, ownerId);
    const storedById = new Map<string | undefined, SubscriptionDocument>(
      all.map((stored) => [stored.id, stored]),
    );
    const synced: SyncedSubscription[] = [];
    for (const fetched of await fetchAll(customerIds, storedById)) {
      const id = idOf(fetched.object);
      const stored = storedById.get(id) ?? null;
      if (id === undefined) continue;
      const key = { id, ownerId };
      if (dryRun) synced.push(merge(stored, key, fetched));
      else synced.push((await write(stored, key, fetched)) ?? (await syncOne(id, ownerId)));
    }
    if (!dryRun) await projector.project(ownerId);
    return synced;
  };

  const oneAtATime = createCoalescer<SyncedSubscription>();
  const allAtATime = createCoalescer<SyncedSubscription[]>();
  /** Syncs one subscription. @throws PAYMENT_PROVIDER_ERROR */
  const syncOne = (id: string, ownerId: string): Promise<SyncedSubscription> =>
    oneAtATime(id, () => runOne(id, ownerId));

  return {
    syncOne,

    /**
     * Stores a state that was fetched, or confirmed by a change, after `stored` was read. Syncs if there was a concurrent
     * write, because the state may be older than that one.
     * @throws PAYMENT_PROVIDER_ERROR
     */
    apply: async (
      stored: SubscriptionDocument,
      fetched: FetchedSubscription,
      change?: SyncedChange,
    ): Promise<SyncedSubscription> =>
      (await write(stored, stored, fetched, change)) ?? runOne(stored.id, stored.ownerId, change),

    /**
     * Syncs every subscription of some customers of a user, and those of the user that belong to other customers, such as
     * one that was replaced. `dryRun` changes nothing.
     * @throws PAYMENT_PROVIDER_ERROR; CUSTOMER_NOT_FOUND if the provider lacks one of the customers and has no current subscription
     */
    syncCustomers: (
      customerIds: readonly string[],
      ownerId: string,
      { dryRun = false }: { dryRun?: boolean } = {},
    ): Promise<SyncedSubscription[]> =>
      allAtATime(`${ownerId} ${customerIds} ${dryRun}`, () => runAll(customerIds, ownerId, dryRun)),
  };
}

/** Runs a request on behalf of all callers that make it at the same time. */
export type Coalescer<T> = (key: string, request: () => Promise<T>) => Promise<T>;

/**
 * At most one request per key is in progress, and one more is queued. Callers that arrive in the meantime share the
 * queued one, because the response to the current one may be older than their call.
 */
export function createCoalescer<T>(): Coalescer<T> {
  const current = new Map<string, Promise<T>>();
  const queued = new Map<string, Promise<T>>();

  const start: Coalescer<T> = (key, request) => {
    queued.delete(key);
    // The async wrapper turns a synchronous throw into a rejection, which frees the key.
    const result = (async () => request())();
    current.set(key, result);
    const end = () => queued.has(key) || current.delete(key);
    result.then(end, end);
    return result;
  };

  return (key, request) => {
    const startNext = () => start(key, request);
    const next = queued.get(key) ?? current.get(key)?.then(startNext, startNext);
    if (!next) return startNext();
    queued.set(key, next);
    return next;
  };
}

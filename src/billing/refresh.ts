import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../kernel/clock.js';
import { createCoalescer } from './coalesce.js';
import { isEntitled, type PastDue } from './entitlement.js';
import { isGone, unknownSubscription } from './errors.js';
import type { ForgetGone } from './forget.js';
import type { Gateway } from './gateway.js';
import { type Emit, subscriptionUpdated } from './notices.js';
import type { Plans } from './plans.js';
import { type Projector, projectsAlike } from './project.js';
import { idIn, type Json, readSnapshot } from './snapshot.js';
import { isTerminal } from './status.js';
import type { SubscriptionDocument, Subscriptions } from './store.js';
import type { SubscriptionWriter } from './write.js';

/**
 * Learning from the provider what no event told. Those who ask about the same at once share what is learnt, or each answer
 * would outdate what the others have read, and all of them would ask anew.
 */
export interface Refresh {
  /** Asks about one subscription. @throws PAYMENT_PROVIDER_ERROR */
  one(id: string, userId: string): Promise<Learnt>;
  /**
   * Asks about every subscription of a customer, and about those that the user is known to have elsewhere, as with a
   * customer who was replaced. With `dryRun` it only looks.
   * @throws PAYMENT_PROVIDER_ERROR; CUSTOMER_NOT_FOUND where the provider knows neither the customer nor any of these
   */
  allOf(customerId: string, userId: string, options?: { dryRun?: boolean }): Promise<Learnt[]>;
}

/** A subscription before and after; `before` is absent where nobody knew of it. */
export interface Learnt {
  id: string;
  before?: SubscriptionDocument;
  after: SubscriptionDocument;
  /** Names of what differs: `status`, `currentPeriodEnd`, … */
  fields: string[];
}

interface Key {
  id: string;
  userId: string;
}

/** A subscription as the provider has it, at some time of its clock. */
interface Found {
  object: Json;
  asOf: number;
}

export interface RefreshDependencies {
  gateway: Gateway;
  subscriptions: Subscriptions;
  writer: SubscriptionWriter;
  plans: Plans;
  projector: Projector;
  forgetGone: ForgetGone;
  emit: Emit;
  pastDue: PastDue;
  clock: Clock;
}

export function createRefresh(deps: RefreshDependencies): Refresh {
  const { gateway, subscriptions, writer, plans, projector, forgetGone, emit, clock } = deps;

  /** Writes what was fetched after `stored` was read; null where an event has written in between. */
  const learn = async (
    stored: SubscriptionDocument | null,
    key: Key,
    found: Found,
  ): Promise<Learnt | null> => {
    const { object, asOf: at } = found;
    const news = { snapshot: readSnapshot(object, plans), at, statusAt: at, inDoubt: false };
    const isToProject = !stored || !projectsAlike(stored, writer.preview(stored, key, news));
    // In doubt until the user's record says it, too: nobody repeats this after a crash but the background.
    const after = await writer.write(stored, key, { ...news, inDoubt: isToProject });
    if (!after) return null;
    // Whoever was deleted in between must not come back with what was just inserted.
    if (!stored && (await forgetGone(after.userId))) return { id: after.id, after, fields: [] };
    await projector.project(after.userId);
    if (isToProject) await writer.settle(after);
    const fields = differences(stored, after);
    if (fields.length > 0) {
      const now = clock.now();
      const told = { at: now, entitled: isEntitled(after, deps.pastDue, now) };
      subscriptionUpdated(`refresh:${after.id}:${after.rev}`, after, told)(emit);
    }
    return { id: after.id, ...(stored && { before: stored }), after, fields };
  };

  const foreseen = (stored: SubscriptionDocument | null, key: Key, { object, asOf: at }: Found): Learnt => {
    const after = writer.preview(stored, key, { snapshot: readSnapshot(object, plans), at, inDoubt: false });
    return { id: key.id, ...(stored && { before: stored }), after, fields: differences(stored, after) };
  };

  const foundOne = async (id: string): Promise<Found> => {
    const found = await gateway.subscription(id);
    if (found) return found;
    throw unknownSubscription();
  };

  /** What the customer has, and what else is known and not over. */
  const foundAll = async (customerId: string, known: Iterable<SubscriptionDocument>): Promise<Found[]> => {
    let gone: unknown;
    const { objects, asOf } = await gateway.subscriptionsOf(customerId).catch((error: unknown) => {
      if (!isGone(error)) throw error;
      gone = error;
      return { objects: [], asOf: 0 };
    });
    const listed = new Set(objects.map(idIn));
    const found: Found[] = objects.map((object) => ({ object, asOf }));
    for (const { id, status } of known) {
      const elsewhere = listed.has(id) || isTerminal(status) ? null : await gateway.subscription(id);
      if (elsewhere) found.push(elsewhere);
    }
    if (gone !== undefined && found.length === 0) throw gone;
    return found;
  };

  const learnOne = async (id: string, userId: string): Promise<Learnt> => {
    for (;;) {
      const stored = await subscriptions.findOne({ id });
      if (stored && isTerminal(stored.status)) {
        await projector.project(stored.userId);
        if (stored.recheckAt !== undefined) await writer.settle(stored);
        return { id, before: stored, after: stored, fields: [] };
      }
      const learnt = await learn(stored, { id, userId: stored?.userId ?? userId }, await foundOne(id));
      if (learnt) return learnt;
    }
  };

  const learnAll = async (customerId: string, userId: string, dryRun: boolean): Promise<Learnt[]> => {
    const known = new Map((await projector.all(userId)).map((stored) => [stored.id, stored]));
    const learnt: Learnt[] = [];
    for (const found of await foundAll(customerId, known.values())) {
      const id = idIn(found.object);
      const stored = known.get(id ?? '') ?? null;
      if (id === undefined || (stored && isTerminal(stored.status))) continue;
      const key = { id, userId };
      if (dryRun) learnt.push(foreseen(stored, key, found));
      else learnt.push((await learn(stored, key, found)) ?? (await one(id, userId)));
    }
    if (!dryRun) await projector.project(userId);
    return learnt;
  };

  const ofOne = createCoalescer<Learnt>();
  const ofAll = createCoalescer<Learnt[]>();
  const one: Refresh['one'] = (id, userId) => ofOne(id, () => learnOne(id, userId));

  return {
    one,

    allOf: (customerId, userId, { dryRun = false } = {}) =>
      ofAll(`${userId} ${customerId} ${dryRun}`, () => learnAll(customerId, userId, dryRun)),
  };
}

/** What the provider says of a subscription, without our own notes. */
function termsOf(subscription: SubscriptionDocument): Partial<Record<string, unknown>> {
  const { at, statusAt, lastEvent, heardAt, recheckAt, rev, updatedAt, createdAt, ...terms } = subscription;
  return terms;
}

/** The names of what differs. */
export function differences(before: SubscriptionDocument | null, after: SubscriptionDocument): string[] {
  const [old, now] = [before ? termsOf(before) : {}, termsOf(after)];
  return [...new Set([...Object.keys(old), ...Object.keys(now)])].filter(
    (name) => !isDeepStrictEqual(old[name], now[name]),
  );
}

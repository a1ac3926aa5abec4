import { defined } from '../../core/kernel/fields.js';
import { allOf } from '../../core/storage/pages.js';
import type { BillingContext } from './context.js';
import type { PaymentEvent } from './events/provider-objects.js';
import { type EventComparison, type EventRecovery, PROVIDER_RETENTION_MS } from './events/recovery.js';
import type { CustomerDocument } from './store.js';
import type { SubscriptionSync, SyncedSubscription } from './subscription/sync.js';

/** Repairs the effects of lost webhooks: finds the events that were not received, and syncs the subscriptions of customers. */
export type Resync = ReturnType<typeof createResync>;

export interface ResyncOptions {
  ownerId?: string;
  /** Compares the events since then, and syncs only the customers that they name. Default: all events of 30 days, all customers. */
  since?: number;
  /** Compares no events, whose list is that of all owners. Default: false. */
  skipEvents?: boolean;
  /** Reports the differences and changes nothing. */
  dryRun?: boolean;
  /** Called while events are compared. */
  onEvents?(compared: number): void;
  /** Called after each customer. */
  onProgress?(done: number, total: number): void;
  signal?: AbortSignal;
}

export interface ResyncReport {
  /** The events that were compared, and how many of which type were not received. The background job of a server processes these. */
  events: { compared: number; missing: Record<string, number> };
  customers: number;
  subscriptions: number;
  /** The repaired differences, or those found by a dry run. */
  changes: ResyncChange[];
  /** Customers that could not be synced. */
  failures: { ownerId: string; reason: string }[];
}

export interface ResyncChange {
  subscriptionId: string;
  ownerId: string;
  /** The previous status; absent if the subscription was not stored. */
  before?: string;
  after: string;
  /** Names of the changed fields: `status`, `currentPeriodEnd`, … */
  fields: string[];
}

interface ResyncDependencies {
  sync: SubscriptionSync;
  recovery: EventRecovery;
  /** Processes the unmatched events of a customer; absent if the background jobs of a server do this. */
  replayUnmatched: ((customerId: string) => Promise<void>) | undefined;
}

const NO_EVENTS: EventComparison = { compared: 0, missing: {}, customerIds: new Set() };

export function createResync(
  { customers, requireGateway, clock }: BillingContext,
  { sync, recovery, replayUnmatched }: ResyncDependencies,
) {
  return {
    /** @throws BILLING_NOT_CONFIGURED; PAYMENT_PROVIDER_ERROR if the events cannot be listed */
    async run(options: ResyncOptions = {}): Promise<ResyncReport> {
      const { ownerId, since, skipEvents = false, dryRun = false, onProgress, onEvents, signal } = options;
      requireGateway();
      const wanted =
        ownerId === undefined
          ? ({ sort: 'id' } as const)
          : ({ where: { ownerId }, sort: 'createdAt' } as const);
      const all = await allOf(customers, wanted);
      const { customerIds, ...events } = skipEvents
        ? NO_EVENTS
        : await recovery.compare(
            defined({
              from: since ?? clock.now() - PROVIDER_RETENTION_MS,
              dryRun,
              includes: ownerId === undefined ? undefined : concerning(ownerId, all),
              onProgress: onEvents,
              signal,
            }),
          );
      const selected = since === undefined ? all : all.filter(({ id }) => customerIds.has(id));
      const report: ResyncReport = {
        events,
        customers: selected.length,
        subscriptions: 0,
        changes: [],
        failures: [],
      };
      let done = 0;
      // A sync of one customer reads the owner's subscriptions of the others as well, so an owner is synced once.
      for (const [ownerId, customerIds] of customersByOwner(selected)) {
        if (signal?.aborted) break;
        try {
          const synced = await sync.syncCustomers(customerIds, ownerId, { dryRun });
          report.subscriptions += synced.length;
          report.changes.push(...synced.flatMap((one) => changeOf(one) ?? []));
          if (!dryRun) for (const customerId of customerIds) await replayUnmatched?.(customerId);
        } catch (error) {
          report.failures.push({ ownerId, reason: (error as Error).message });
        }
        done += customerIds.length;
        onProgress?.(done, selected.length);
      }
      return report;
    },
  };
}

/** Whether an event may be about an owner. A dispute names no customer. */
function concerning(ownerId: string, owned: readonly CustomerDocument[]) {
  const ids = new Set(owned.map(({ id }) => id));
  return ({ customerId, metadataOwnerId, referenceOwnerId }: PaymentEvent): boolean =>
    customerId === undefined || ids.has(customerId) || [metadataOwnerId, referenceOwnerId].includes(ownerId);
}

function customersByOwner(customers: readonly CustomerDocument[]): Map<string, string[]> {
  const groups = new Map<string, string[]>();
  for (const { id, ownerId } of customers) groups.set(ownerId, [...(groups.get(ownerId) ?? []), id]);
  return groups;
}

function changeOf({ id, before, after, fields }: SyncedSubscription): ResyncChange | null {
  if (fields.length === 0) return null;
  const { ownerId, status } = after;
  return { subscriptionId: id, ownerId, ...(before && { before: before.status }), after: status, fields };
}

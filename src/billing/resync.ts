import { pagesOf } from '../storage/pages.js';
import { billingErrors } from './errors.js';
import { HANDLED_EVENT_TYPES, parseEvent } from './event.js';
import type { Gateway } from './gateway.js';
import { asText, type Json } from './provider-objects.js';
import type { CustomerDocument, Customers } from './store.js';
import type { SubscriptionSync, SyncedSubscription } from './sync.js';

/** Repairs the effects of lost webhooks: syncs every customer, or those with recent events at the provider. */
export interface Resync {
  /** @throws BILLING_NOT_CONFIGURED; PAYMENT_PROVIDER_ERROR where the recent events cannot be listed */
  run(options?: ResyncOptions): Promise<ResyncReport>;
}

export interface ResyncOptions {
  userId?: string;
  /** Only customers with events at the provider since then, in epoch milliseconds. It keeps events for 30 days. */
  since?: number;
  /** Reports the differences and changes nothing. */
  dryRun?: boolean;
  /** Called after each customer. */
  onProgress?(done: number, total: number): void;
  signal?: AbortSignal;
}

export interface ResyncReport {
  customers: number;
  subscriptions: number;
  /** The repaired differences, or those found by a dry run. */
  changes: ResyncChange[];
  /** Customers that could not be synced. */
  failures: { userId: string; reason: string }[];
}

export interface ResyncChange {
  subscriptionId: string;
  userId: string;
  /** The status before; absent where the subscription was not stored. */
  before?: string;
  after: string;
  /** Names of the changed fields: `status`, `currentPeriodEnd`, … */
  fields: string[];
}

export interface ResyncDependencies {
  customers: Customers;
  /** Both absent while no API key is configured. */
  gateway: Gateway | undefined;
  sync: SubscriptionSync | undefined;
  /** Processes the unmatched events of a customer; absent where this is left to the background jobs of a server. */
  replayUnmatched: ((customerId: string) => Promise<void>) | undefined;
}

export function createResync({ customers, gateway, sync, replayUnmatched }: ResyncDependencies): Resync {
  const listCustomers = async (filter: {
    customerIds?: Set<string>;
    userId?: string;
  }): Promise<CustomerDocument[]> => {
    const found: CustomerDocument[] = [];
    const { userId: id } = filter;
    const query = { sort: 'id', ...(id !== undefined && { where: { id } }) } as const;
    for await (const page of pagesOf(customers, query)) {
      found.push(...page.filter(({ customerId }) => filter.customerIds?.has(customerId) ?? true));
    }
    return found;
  };

  return {
    async run({ userId, since, dryRun = false, onProgress, signal } = {}) {
      if (!gateway || !sync) throw billingErrors.BILLING_NOT_CONFIGURED();
      const recent =
        since === undefined ? undefined : await gateway.eventsSince(since, [...HANDLED_EVENT_TYPES]);
      const selected = await listCustomers({
        ...(recent && { customerIds: new Set(recent.flatMap((event) => customerOf(event) ?? [])) }),
        ...(userId !== undefined && { userId }),
      });
      const report: ResyncReport = {
        customers: selected.length,
        subscriptions: 0,
        changes: [],
        failures: [],
      };
      for (const [index, { id, customerId }] of selected.entries()) {
        if (signal?.aborted) break;
        try {
          const synced = await sync.syncCustomer(customerId, id, { dryRun });
          report.subscriptions += synced.length;
          report.changes.push(...synced.flatMap((one) => changeOf(one) ?? []));
          if (!dryRun) await replayUnmatched?.(customerId);
        } catch (error) {
          report.failures.push({ userId: id, reason: (error as Error).message });
        }
        onProgress?.(index + 1, selected.length);
      }
      return report;
    },
  };
}

const customerOf = (event: Json): string | undefined =>
  parseEvent(JSON.stringify(event), asText(event['id']) ?? 'none').customerId;

function changeOf({ id, before, after, fields }: SyncedSubscription): ResyncChange | null {
  if (fields.length === 0) return null;
  const { userId, status } = after;
  return { subscriptionId: id, userId, ...(before && { before: before.status }), after: status, fields };
}

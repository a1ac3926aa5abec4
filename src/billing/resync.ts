import { pagesOf } from '../storage/pages.js';
import { billingErrors } from './errors.js';
import { HANDLED, readEvent } from './event.js';
import type { Gateway } from './gateway.js';
import type { Learnt, Refresh } from './refresh.js';
import { type Json, nameIn } from './snapshot.js';
import type { CustomerDocument, Customers } from './store.js';

/** Repairs what lost webhooks left behind: asks the provider about everybody, or about those it has told of lately. */
export interface Resync {
  /** @throws BILLING_NOT_CONFIGURED, PAYMENT_PROVIDER_ERROR where not even the list of customers can be made */
  run(options?: ResyncOptions): Promise<ResyncReport>;
}

export interface ResyncOptions {
  userId?: string;
  /** Only those of whom the provider has told since then. Epoch milliseconds; it remembers 30 days. */
  since?: number;
  /** Looks and changes nothing. */
  dryRun?: boolean;
  /** Called after each customer. */
  onProgress?(done: number, total: number): void;
  signal?: AbortSignal;
}

export interface ResyncReport {
  customers: number;
  subscriptions: number;
  /** What is, or would be, other than it was. */
  changes: ResyncChange[];
  /** Customers the provider could not be asked about. */
  failures: { userId: string; reason: string }[];
}

export interface ResyncChange {
  subscriptionId: string;
  userId: string;
  /** Absent for a subscription that nobody knew of. */
  before?: string;
  after: string;
  /** Names of what differs: `status`, `currentPeriodEnd`, … */
  fields: string[];
}

export interface ResyncDependencies {
  customers: Customers;
  /** Both absent while no key is configured. */
  gateway: Gateway | undefined;
  refresh: Refresh | undefined;
  /** Takes up the events that waited for a customer; absent where the background is left to do it. */
  replay?: (customerId: string) => Promise<void>;
}

export function createResync({ customers, gateway, refresh, replay }: ResyncDependencies): Resync {
  const listed = async (where: {
    customerIds?: Set<string>;
    userId?: string;
  }): Promise<CustomerDocument[]> => {
    const found: CustomerDocument[] = [];
    const { userId: id } = where;
    const query = { sort: 'id', ...(id !== undefined && { where: { id } }) } as const;
    for await (const page of pagesOf(customers, query)) {
      found.push(...page.filter(({ customerId }) => where.customerIds?.has(customerId) ?? true));
    }
    return found;
  };

  return {
    async run({ userId, since, dryRun = false, onProgress, signal } = {}) {
      if (!gateway || !refresh) throw billingErrors.BILLING_NOT_CONFIGURED();
      const told = since === undefined ? undefined : await gateway.eventsSince(since, [...HANDLED]);
      const concerned = await listed({
        ...(told && { customerIds: new Set(told.flatMap((event) => customerOf(event) ?? [])) }),
        ...(userId !== undefined && { userId }),
      });
      const report: ResyncReport = {
        customers: concerned.length,
        subscriptions: 0,
        changes: [],
        failures: [],
      };
      for (const [index, { id, customerId }] of concerned.entries()) {
        if (signal?.aborted) break;
        try {
          const learnt = await refresh.allOf(customerId, id, { dryRun });
          report.subscriptions += learnt.length;
          report.changes.push(...learnt.flatMap((one) => changeIn(one) ?? []));
          if (!dryRun) await replay?.(customerId);
        } catch (error) {
          report.failures.push({ userId: id, reason: (error as Error).message });
        }
        onProgress?.(index + 1, concerned.length);
      }
      return report;
    },
  };
}

const customerOf = (event: Json): string | undefined =>
  readEvent(JSON.stringify(event), nameIn(event['id']) ?? 'none').customerId;

function changeIn({ id, before, after, fields }: Learnt): ResyncChange | null {
  if (fields.length === 0) return null;
  const { userId, status } = after;
  return { subscriptionId: id, userId, ...(before && { before: before.status }), after: status, fields };
}

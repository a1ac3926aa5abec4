import type { BillingContext } from '../context.js';
import { billingErrors, isCustomerMissing, isProviderError } from '../errors.js';
import { type BillingOwner, ownerIn } from '../owners.js';
import type { Gateway } from '../provider/gateway.js';
import { asObject, asText, idOf, type Json } from '../provider/json.js';
import type { SubscriptionSync } from '../subscription/sync.js';
import type { CustomerLinks } from './customers.js';

/** Links customers that existed at the provider before this product to users, with their subscriptions. */

/** Whose customer the operator says it is: one of `userId` and `email`. */
export interface CustomerClaim {
  customerId: string;
  userId?: string;
  email?: string;
}

export interface CustomerImportOptions {
  /** What the operator knows. Without it, all customers of the provider are read. */
  claims?: AsyncIterable<CustomerClaim> | undefined;
  /** The key of the customers' metadata that has the ID of the user. Default: `userId`, and `organizationId` for an organization. */
  metadataKey?: string | undefined;
  /** Whether a customer without such metadata is linked to the user who has confirmed its address. Default: false. */
  byEmail?: boolean | undefined;
  /** Reports what would be linked and changes nothing. */
  dryRun?: boolean | undefined;
  signal?: AbortSignal | undefined;
  /** Called after each customer. */
  onProgress?(done: number): void;
  /** Called for each customer that is not linked to a user yet. */
  onResult?(result: CustomerResult): void;
}

export interface CustomerResult {
  customerId: string;
  /**
   * - `linked`: to the user, or it would be in a dry run
   * - `ambiguous`: several customers have the address of the user, or the user has another one
   * - `missing`: no user is known
   * - `failed`: the provider did not answer, or does not know it
   */
  outcome: 'linked' | 'ambiguous' | 'missing' | 'failed';
  userId?: string;
  /** What names the user. */
  by?: 'claim' | 'metadata' | 'email';
  /** Of a linked customer. */
  subscriptions?: number;
  reason?: string;
}

export type CustomerImportReport = Record<CustomerResult['outcome'], number> & {
  customers: number;
  /** Those that were linked before. */
  known: number;
  interrupted: boolean;
};

type Found = { user: BillingOwner; by: NonNullable<CustomerResult['by']> } | { reason: string };

export function createCustomerImport(
  { owners, commitForOwner, gateway, audit }: BillingContext,
  { links, sync }: { links: CustomerLinks; sync: SubscriptionSync | undefined },
) {
  const findClaimed = async ({ userId, email = '' }: CustomerClaim): Promise<Found> => {
    const user = userId === undefined ? await owners.findByEmail(email) : await owners.find(userId);
    return user ? { user, by: 'claim' } : { reason: `there is no user ${userId ?? email}` };
  };

  /** Only the seller writes metadata, so it comes before the address, which anyone can enter at the provider. */
  const findNamed = async (
    customer: Json,
    { metadataKey, byEmail }: CustomerImportOptions,
  ): Promise<Found> => {
    const metadata = asObject(customer['metadata']);
    const named = metadataKey === undefined ? ownerIn(metadata) : asText(metadata[metadataKey]);
    const byMetadata = named === undefined ? null : await owners.find(named);
    if (byMetadata) return { user: byMetadata, by: 'metadata' };
    const email = asText(customer['email']);
    const user = byEmail && email !== undefined ? await owners.findByEmail(email) : null;
    if (user?.emailVerified) return { user, by: 'email' };
    if (user) return { reason: `the user ${user.id} has not confirmed the address` };
    return { reason: named === undefined ? 'nothing names a user' : `there is no user ${named}` };
  };

  async function* claimed(claims: AsyncIterable<CustomerClaim>) {
    for await (const claim of claims) yield [claim.customerId, () => findClaimed(claim)] as const;
  }

  async function* named(from: Gateway, options: CustomerImportOptions) {
    for await (const page of from.customerPages())
      for (const customer of page) yield [idOf(customer) ?? '', () => findNamed(customer, options)] as const;
  }

  /** The subscriptions are stored first, so that a customer that is linked is complete. */
  const link = async (customerId: string, userId: string): Promise<{ subscriptions: number }> => {
    const synced = (await sync?.syncCustomers([customerId], userId)) ?? [];
    await commitForOwner(userId, async (user) => {
      const write = await links.linking(userId, customerId);
      const record = audit.entry({
        event: 'customer.linked',
        subject: userId,
        ip: 'local',
        detail: customerId,
      });
      return write ? [write, owners.locking(user), record] : null;
    });
    return { subscriptions: synced.length };
  };

  return {
    /** @throws BILLING_NOT_CONFIGURED; PAYMENT_PROVIDER_ERROR if the customers cannot be listed */
    async run(options: CustomerImportOptions = {}): Promise<CustomerImportReport> {
      const { claims, dryRun = false, signal, onProgress, onResult } = options;
      if (!gateway || !sync) throw billingErrors.BILLING_NOT_CONFIGURED();
      const report = { customers: 0, known: 0, linked: 0, ambiguous: 0, missing: 0, failed: 0 };
      const byAddress = new Map<string, string[]>();
      const linkedNow = new Set<string>();

      const tell = (result: CustomerResult) => {
        report[result.outcome]++;
        onResult?.(result);
      };
      const apply = async (customerId: string, { user, by }: Extract<Found, { user: unknown }>) => {
        const result = { customerId, userId: user.id, by };
        try {
          tell({ ...result, outcome: 'linked', ...(!dryRun && (await link(customerId, user.id))) });
          linkedNow.add(user.id);
        } catch (error) {
          if (!isProviderError(error) && !isCustomerMissing(error)) throw error;
          tell({ ...result, outcome: 'failed', reason: (error as Error).message });
        }
      };
      const consider = async (customerId: string, find: () => Promise<Found>) => {
        report.customers++;
        const owner = await links.findUser(customerId);
        const found = owner === null || claims ? await find() : undefined;
        const isOther = owner !== null && found && 'user' in found && found.user.id !== owner;
        if (isOther)
          tell({ customerId, outcome: 'ambiguous', reason: `it belongs to the user ${owner} already` });
        else if (owner !== null || !found) report.known++;
        else if ('reason' in found) tell({ customerId, outcome: 'missing', ...found });
        else if (found.by !== 'email') await apply(customerId, found);
        // Whether another one has the same address is known at the end.
        else byAddress.set(found.user.id, [...(byAddress.get(found.user.id) ?? []), customerId]);
        onProgress?.(report.customers);
      };

      for await (const [customerId, find] of claims ? claimed(claims) : named(gateway, options)) {
        if (signal?.aborted) break;
        await consider(customerId, find);
      }
      for (const [userId, customerIds] of signal?.aborted ? [] : byAddress) {
        const [customerId = '', ...others] = customerIds;
        const hasCustomer = linkedNow.has(userId) || (await links.list(userId)).length > 0;
        const user = await owners.find(userId);
        if (others.length === 0 && !hasCustomer && user) {
          await apply(customerId, { user, by: 'email' });
          continue;
        }
        const reason = hasCustomer ? 'the user has another customer' : 'several customers have the address';
        for (const id of customerIds)
          tell({ customerId: id, outcome: 'ambiguous', userId, by: 'email', reason });
      }
      return { ...report, interrupted: signal?.aborted === true };
    },
  };
}

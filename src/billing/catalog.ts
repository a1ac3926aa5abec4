import { toTimestamp } from '../http/schemas.js';
import { type Clock, MINUTE, SECOND } from '../kernel/clock.js';
import { billingErrors, isGone } from './errors.js';
import type { Gateway } from './gateway.js';
import type { Plans } from './plans.js';
import type { Invoice, Plan } from './schemas.js';
import { idIn, type Json, nameIn, objectIn, timeIn } from './snapshot.js';
import type { Customers } from './store.js';

/** What is sold and what was billed, in the provider's own words. */
export interface Catalog {
  /** @throws BILLING_NOT_CONFIGURED, PAYMENT_PROVIDER_ERROR */
  plans(): Promise<Plan[]>;
  /** The newest first. @throws BILLING_NOT_CONFIGURED, PAYMENT_PROVIDER_ERROR */
  invoices(userId: string): Promise<Invoice[]>;
}

export interface CatalogDependencies {
  customers: Customers;
  plans: Plans;
  gateway: Gateway | undefined;
  clock: Clock;
}

/** Anybody may ask for the plans, which must not become a flood of calls to the provider. Milliseconds. */
const MAX_AGE = MINUTE;

/** How long a failure of the provider is remembered: a call that times out would make every request wait. */
const MAX_FAILURE_AGE = 10 * SECOND;

export function createCatalog({ customers, plans, gateway, clock }: CatalogDependencies): Catalog {
  let latest: { plans: Promise<Plan[]>; at: number; maxAge: number } | undefined;

  const ask = async (from: Gateway): Promise<Plan[]> => {
    const prices = await from.prices();
    const sold = prices.filter((price) => plans.allows(idIn(price) ?? '') && !isArchived(price));
    return sold.flatMap((price) => planView(price, plans) ?? []);
  };

  return {
    async plans() {
      if (!gateway) throw billingErrors.BILLING_NOT_CONFIGURED();
      if (latest && Math.abs(clock.now() - latest.at) < latest.maxAge) return latest.plans;
      const asked = { plans: ask(gateway), at: clock.now(), maxAge: MAX_AGE };
      latest = asked;
      asked.plans.catch(() => Object.assign(asked, { at: clock.now(), maxAge: MAX_FAILURE_AGE }));
      return asked.plans;
    },

    async invoices(userId) {
      if (!gateway) throw billingErrors.BILLING_NOT_CONFIGURED();
      const customer = await customers.findOne({ id: userId });
      if (!customer) return [];
      const invoices = gateway.invoicesOf(customer.customerId).catch((error: unknown) => {
        if (isGone(error)) return [];
        throw error;
      });
      return (await invoices).flatMap((invoice) => invoiceView(invoice) ?? []);
    },
  };
}

/** The prices of a product that was archived stay active, and the provider sells none of them. */
const isArchived = (price: Json): boolean => objectIn(price['product'])['active'] === false;

function planView(price: Json, plans: Plans): Plan | null {
  const priceId = idIn(price);
  if (priceId === undefined) return null;
  const lookupKey = nameIn(price['lookup_key']);
  const metadataPlan = nameIn(objectIn(price['metadata'])['plan']);
  const recurring = objectIn(price['recurring']);
  const product = objectIn(price['product']);
  return {
    priceId,
    plan: plans.named({
      priceId,
      ...(lookupKey !== undefined && { lookupKey }),
      ...(metadataPlan !== undefined && { metadataPlan }),
    }),
    name: nameIn(product['name']) ?? null,
    description: nameIn(product['description']) ?? null,
    amount: wholeIn(price['unit_amount']),
    currency: nameIn(price['currency']) ?? null,
    interval: nameIn(recurring['interval']) ?? null,
    intervalCount: wholeIn(recurring['interval_count']),
  };
}

function invoiceView(invoice: Json): Invoice | null {
  const id = idIn(invoice);
  const created = timeIn(invoice['created']);
  if (id === undefined || created === undefined) return null;
  return {
    id,
    number: nameIn(invoice['number']) ?? null,
    status: nameIn(invoice['status']) ?? null,
    amountDue: wholeIn(invoice['amount_due']),
    amountPaid: wholeIn(invoice['amount_paid']),
    currency: nameIn(invoice['currency']) ?? null,
    createdAt: toTimestamp(created),
    url: webAddressIn(invoice['hosted_invoice_url']),
    pdf: webAddressIn(invoice['invoice_pdf']),
  };
}

const wholeIn = (value: unknown): number | null =>
  typeof value === 'number' && Number.isSafeInteger(value) ? value : null;

/** Clients make links of it. */
const webAddressIn = (value: unknown): string | null =>
  typeof value === 'string' && /^https:\/\//.test(value) ? value : null;

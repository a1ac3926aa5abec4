import { toTimestamp } from '../../../core/http/schemas.js';
import type { BillingContext } from '../context.js';
import type { CustomerLinks } from '../customers/customers.js';
import { billingErrors, isCustomerMissing, isProviderError } from '../errors.js';
import { subscriptionOf } from '../events/provider-objects.js';
import type { Gateway } from '../provider/gateway.js';
import { asInteger, asLink, asObject, asText, asTime, idOf, type Json } from '../provider/json.js';
import { createResponseCache } from '../provider/response-cache.js';
import type { Invoice, Plan } from '../schemas.js';
import type { LookupKeys } from './lookup-keys.js';
import { FREE_PLAN } from './options.js';
import type { Plans } from './plans.js';

/** The prices for sale and the invoices of users, as stored by the provider. */
export type Catalog = ReturnType<typeof createCatalog>;

export function createCatalog(
  { plans, gateway, clock, log }: BillingContext,
  { links, lookupKeys }: { links: Pick<CustomerLinks, 'list'>; lookupKeys: LookupKeys },
) {
  // The plans are public, and each request must not cause a call to the provider.
  const cached = createResponseCache<Plan[]>(clock);
  /** What is served while the provider is unavailable. */
  let lastKnown: Plan[] | undefined;

  const fetchPlans = async (from: Gateway): Promise<Plan[]> => {
    const prices = await from.prices();
    await lookupKeys.remember(prices);
    const forSale = prices.filter((price) => plans.isForSale(idOf(price) ?? '') && !isArchived(price));
    // The provider does not know the plan that every user has.
    const free = plans.configOf(FREE_PLAN) ? [planView({}, FREE_PLAN, plans)] : [];
    return [...free, ...forSale.map((price) => planView(price, planOf(price, plans), plans))];
  };

  return {
    /** @throws BILLING_NOT_CONFIGURED, PAYMENT_PROVIDER_ERROR */
    async plans(): Promise<Plan[]> {
      if (!gateway) throw billingErrors.BILLING_NOT_CONFIGURED();
      try {
        lastKnown = await cached('plans', () => fetchPlans(gateway));
      } catch (err) {
        if (!lastKnown || !isProviderError(err)) throw err;
        log.warn({ err }, 'the last known plans are served, because the payment provider does not respond');
      }
      return lastKnown;
    },

    /** The newest of all customers of the user first. @throws BILLING_NOT_CONFIGURED, PAYMENT_PROVIDER_ERROR */
    async invoices(ownerId: string): Promise<Invoice[]> {
      if (!gateway) throw billingErrors.BILLING_NOT_CONFIGURED();
      const ofCustomer = (customerId: string) =>
        gateway.invoicesOf(customerId).catch((error: unknown) => {
          if (isCustomerMissing(error)) return [];
          throw error;
        });
      const invoices = (await Promise.all((await links.list(ownerId)).map(ofCustomer))).flat();
      // A draft is not final: the provider still changes it, and it has no number and no page.
      const final = invoices.filter(({ status }) => status !== 'draft');
      return final
        .flatMap((invoice) => invoiceView(invoice) ?? [])
        .toSorted((a, b) => Date.parse(b.createdAt) - Date.parse(a.createdAt));
    },
  };
}

/** The prices of an archived product remain active, but the provider does not sell them. */
const isArchived = (price: Json): boolean => asObject(price['product'])['active'] === false;

const planOf = (price: Json, plans: Plans): string =>
  plans.planOf({
    priceId: idOf(price),
    lookupKey: asText(price['lookup_key']),
    metadataPlan: asText(asObject(price['metadata'])['plan']),
  });

function planView(price: Json, plan: string, plans: Plans): Plan {
  const priceId = idOf(price) ?? null;
  const recurring = asObject(price['recurring']);
  const product = asObject(price['product']);
  const interval = asText(recurring['interval']) ?? null;
  const { name, features = [] } = plans.configOf(plan) ?? {};
  return {
    priceId,
    plan,
    name: name ?? asText(product['name']) ?? null,
    description: asText(product['description']) ?? null,
    amount: asInteger(price['unit_amount']) ?? null,
    currency: asText(price['currency']) ?? null,
    currencies: currenciesOf(price),
    interval,
    intervalCount: asInteger(recurring['interval_count']) ?? null,
    usageType: asText(recurring['usage_type']) ?? null,
    trialDays: (interval === null ? undefined : plans.checkoutOf(priceId ?? '').trialDays) ?? null,
    features,
    limits: plans.limitsOf(plan),
  };
}

/** The price's own currency first. */
function currenciesOf(price: Json): Plan['currencies'] {
  const own = asText(price['currency']);
  if (own === undefined) return [];
  const { [own]: _own, ...others } = asObject(price['currency_options']);
  return Object.entries({ [own]: price, ...others }).map(([currency, option]) => ({
    currency,
    amount: asInteger(asObject(option)['unit_amount']) ?? null,
  }));
}

function invoiceView(invoice: Json): Invoice | null {
  const id = idOf(invoice);
  const created = asTime(invoice['created']);
  if (id === undefined || created === undefined) return null;
  return {
    id,
    number: asText(invoice['number']) ?? null,
    status: asText(invoice['status']) ?? null,
    amountDue: asInteger(invoice['amount_due']) ?? null,
    amountPaid: asInteger(invoice['amount_paid']) ?? null,
    currency: asText(invoice['currency']) ?? null,
    createdAt: toTimestamp(created),
    url: asLink(invoice['hosted_invoice_url']),
    pdf: asLink(invoice['invoice_pdf']),
    subscriptionId: subscriptionOf(invoice) ?? null,
  };
}

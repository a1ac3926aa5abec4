import { sha256 } from '../../core/kernel/secrets.js';
import { keyedPrices, type PlansSource } from './options.js';
import type { KeyedPrice } from './plans/options.js';
import { missingEventTypes, sentEventTypes } from './provider/account-setup.js';
import type { Gateway } from './provider/gateway.js';
import { asObject, asText, idOf, type Json } from './provider/json.js';

/**
 * What the provider has to know before it can be used: products and prices of the plans, settings of the customer portal, and the webhook
 * endpoint. Compared first; a second push finds nothing to do.
 */
export interface PushedChange {
  action: 'create' | 'update';
  /** `product pro`, `price pro_monthly` */
  about: string;
  /** What differs, a line each. */
  details: string[];
  /** @returns what is shown once: the secret of a new endpoint */
  apply(): Promise<string | undefined>;
}

export interface PushTarget {
  /** Absent: the endpoint is not compared, because the provider cannot reach it. */
  webhookUrl: string | undefined;
  /** Where the customer portal leads back. */
  returnUrl: string | undefined;
  plans: PlansSource;
}

/** Compares the account with what it has to be. @throws PAYMENT_PROVIDER_ERROR */
export async function comparePush(gateway: Gateway, target: PushTarget): Promise<PushedChange[]> {
  return [
    ...(await planChanges(gateway, target.plans)),
    ...(await portalChanges(gateway, target)),
    ...(target.webhookUrl === undefined ? [] : await webhookChanges(gateway, target.webhookUrl)),
  ];
}

/** The product of a plan has the name of the plan in its ID, so that a repeated creation finds it. */
const productIdOf = (plan: string): string => `plan_${plan.replaceAll(/[^\w-]/g, '_')}`;

async function planChanges(gateway: Gateway, plans: PlansSource): Promise<PushedChange[]> {
  const keyed = keyedPrices(plans);
  if (keyed.length === 0) return [];
  const existing = await gateway.pricesOfKeys(
    keyed.map(({ price }) => price.lookupKey),
    {},
  );
  const ofKey = new Map(existing.map((price) => [asText(price['lookup_key']), price]));
  const changes: PushedChange[] = [];
  for (const plan of new Set(keyed.map((one) => one.plan))) {
    const id = productIdOf(plan);
    const name = plans.billing?.plans[plan]?.name ?? plan;
    const product = await gateway.product(id);
    if (!product || product['name'] !== name || product['active'] === false)
      changes.push({
        action: product ? 'update' : 'create',
        about: `product ${id}`,
        details: [`name ${name}`],
        apply: () => (product ? gateway.updateProduct : gateway.createProduct)(id, name, plan),
      });
  }
  for (const { plan, price } of keyed)
    changes.push(...priceChange(gateway, plan, price, ofKey.get(price.lookupKey)));
  return changes;
}

/** A price cannot change: another one takes its lookup key over, and running subscriptions keep the former. */
function priceChange(
  gateway: Gateway,
  plan: string,
  price: KeyedPrice,
  former: Json | undefined,
): PushedChange[] {
  const product = productIdOf(plan);
  // Nothing is sold with a price that was archived by hand.
  const sold = former?.['active'] === true ? former : undefined;
  const { amount, currency, interval, intervalCount = 1 } = price;
  const [before, after] = [sold && termsOf(sold), terms(amount, currency, interval, intervalCount)];
  if (before === after && idOf(sold?.['product']) === product) return [];
  const soldId = idOf(sold);
  return [
    {
      action: soldId === undefined ? 'create' : 'update',
      about: `price ${price.lookupKey}`,
      details: [before === undefined ? after : `${before} → ${after}, for new subscriptions`],
      async apply() {
        // With the ID of an archived price, because the provider answers a repeated key with that price for a day.
        const key = sha256(JSON.stringify([price, product, idOf(former)]));
        await gateway.createPrice({ price, product, plan }, `price-${key}`);
        if (soldId !== undefined) await gateway.archivePrice(soldId);
      },
    },
  ];
}

function termsOf(price: Json): string {
  const { interval, interval_count: count } = asObject(price['recurring']);
  return terms(price['unit_amount'], price['currency'], interval, count);
}

const terms = (amount: unknown, currency: unknown, interval: unknown, count: unknown): string =>
  `${amount} ${currency} ${interval === undefined ? 'once' : `every ${count} ${interval}`}`;

/** Settings that the seller has saved stay as they are. */
async function portalChanges(gateway: Gateway, { returnUrl }: PushTarget): Promise<PushedChange[]> {
  if ((await gateway.portalSettings()) !== undefined) return [];
  return [
    {
      action: 'create',
      about: 'customer portal',
      details: ['payment methods, invoices, addresses, and cancellation at the end of the period'],
      apply: () => gateway.createPortalSettings(returnUrl),
    },
  ];
}

/** Event types that the seller has added stay. */
async function webhookChanges(gateway: Gateway, url: string): Promise<PushedChange[]> {
  const all = await gateway.webhookEndpoints();
  // Those of connected accounts send no events of this account.
  const own = all.filter((one) => one['url'] === url && one['application'] == null);
  const isEnabled = ({ status }: Json) => status !== 'disabled';
  const found = own.find(isEnabled) ?? own[0];
  const [types, missing] = [sentEventTypes(found), missingEventTypes(found)];
  const id = idOf(found);
  if (id !== undefined && missing.length === 0 && isEnabled(found ?? {})) return [];
  return [
    {
      action: id === undefined ? 'create' : 'update',
      about: `webhook endpoint ${url}`,
      details: [...(found && !isEnabled(found) ? ['enable'] : []), ...missing],
      async apply() {
        if (id !== undefined)
          return gateway.updateWebhookEndpoint(id, types.includes('*') ? types : [...types, ...missing]);
        const key = sha256(JSON.stringify([url, own.length, missing]));
        return (await gateway.createWebhookEndpoint({ url, events: missing }, `webhook-${key}`)).secret;
      },
    },
  ];
}

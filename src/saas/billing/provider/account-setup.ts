import type Stripe from 'stripe';
import { defined } from '../../../core/kernel/fields.js';
import { HANDLED_EVENT_TYPES } from '../events/provider-objects.js';
import type { KeyedPrice } from '../plans/options.js';
import { type ProviderCall, retryIdempotently } from './client.js';
import { asObject, asText, idOf, type Json } from './json.js';
import { fetchAll, malformed, PAGE_SIZE, requireId, requireList, retrieve } from './responses.js';

/** Settings of the portal that this product has created. */
const OWN_PORTAL = { saas_backend: 'true' };

/** The provider's maximum in one request. */
const MAX_LOOKUP_KEYS = 10;

/** The event types that an endpoint sends. */
export const sentEventTypes = (endpoint: Json | undefined): string[] =>
  [endpoint?.['enabled_events'] ?? []].flat().flatMap((type) => asText(type) ?? []);

/** Those that have an effect here and that the endpoint does not send. */
export function missingEventTypes(endpoint: Json | undefined): string[] {
  const sent = sentEventTypes(endpoint);
  return sent.includes('*') ? [] : [...HANDLED_EVENT_TYPES].filter((type) => !sent.includes(type));
}

/** Requests that set up the account at the provider: products, prices, the customer portal and webhook endpoints. */
export function createAccountSetup(call: ProviderCall) {
  return {
    /** Null if there is none. */
    product: (id: string) => retrieve(call, id, ({ products }) => products.retrieve(id)),

    async createProduct(id: string, name: string, plan: string): Promise<undefined> {
      await call(({ products }) => products.create({ id, name, metadata: { plan } }));
    },

    async updateProduct(id: string, name: string, plan: string): Promise<undefined> {
      await call(({ products }) => products.update(id, { name, metadata: { plan }, active: true }));
    },

    /** The prices that have these lookup keys. @param only `{}`: archived ones as well */
    async pricesOfKeys(keys: readonly string[], only: { active?: true } = { active: true }): Promise<Json[]> {
      const found: Json[] = [];
      for (let at = 0; at < keys.length; at += MAX_LOOKUP_KEYS) {
        const lookup_keys = keys.slice(at, at + MAX_LOOKUP_KEYS);
        const list = await call(({ prices }) =>
          prices.list({ lookup_keys, ...only, expand: ['data.product'] }),
        );
        found.push(...requireList(list));
      }
      return found;
    },

    /** Takes the lookup key over from another price. */
    async createPrice(
      { price, product, plan }: { price: KeyedPrice; product: string; plan: string },
      idempotencyKey: string,
    ): Promise<undefined> {
      const { lookupKey, amount, currency, interval, intervalCount = 1 } = price;
      const params: Stripe.PriceCreateParams = defined({
        product,
        currency,
        unit_amount: amount,
        lookup_key: lookupKey,
        transfer_lookup_key: true,
        metadata: { plan },
        recurring: interval && { interval, interval_count: intervalCount },
      });
      await call((stripe) =>
        retryIdempotently(idempotencyKey, (key) => stripe.prices.create(params, { idempotencyKey: key })),
      );
    },

    /** Running subscriptions keep it. */
    async archivePrice(id: string): Promise<undefined> {
      requireId(await call((stripe) => stripe.prices.update(id, { active: false })), id);
    },

    /** The settings of the customer portal: the default ones, or those of `createPortalSettings`; undefined if there are none. */
    async portalSettings(): Promise<string | undefined> {
      const list = await call(({ billingPortal }) =>
        billingPortal.configurations.list({ active: true, limit: PAGE_SIZE }),
      );
      const all = requireList(list);
      const isOwn = ({ metadata }: Json) => asObject(metadata)['saas_backend'] === OWN_PORTAL.saas_backend;
      return idOf(all.find((one) => one['is_default'] === true) ?? all.find(isOwn));
    },

    async createPortalSettings(returnUrl: string | undefined): Promise<undefined> {
      const params: Stripe.BillingPortal.ConfigurationCreateParams = defined({
        default_return_url: returnUrl,
        metadata: OWN_PORTAL,
        features: {
          customer_update: { enabled: true, allowed_updates: ['address', 'tax_id'] },
          invoice_history: { enabled: true },
          payment_method_update: { enabled: true },
          subscription_cancel: { enabled: true, mode: 'at_period_end' },
        },
      });
      await call((stripe) => stripe.billingPortal.configurations.create(params));
    },

    webhookEndpoints: () =>
      call(({ webhookEndpoints }) =>
        fetchAll((after) => webhookEndpoints.list({ limit: PAGE_SIZE, ...after })),
      ),

    /** The secret is only in this response. The same key creates one endpoint. */
    async createWebhookEndpoint(
      { url, events }: { url: string; events: readonly string[] },
      idempotencyKey: string,
    ): Promise<{ id: string; secret: string }> {
      const created = await call((stripe) =>
        stripe.webhookEndpoints.create({ url, enabled_events: asEvents(events) }, { idempotencyKey }),
      );
      const [id, secret] = [asText(created.id), asText(created.secret)];
      if (id === undefined || secret === undefined) throw malformed('A webhook endpoint without a secret.');
      return { id, secret };
    },

    /** Enables an endpoint with these events. */
    async updateWebhookEndpoint(id: string, events: readonly string[]): Promise<undefined> {
      const changes = { enabled_events: asEvents(events), disabled: false };
      requireId(await call((stripe) => stripe.webhookEndpoints.update(id, changes)), id);
    },
  };
}

/** The SDK lists the types that existed when it was made. */
const asEvents = (events: readonly string[]) =>
  [...events] as Stripe.WebhookEndpointCreateParams.EnabledEvent[];

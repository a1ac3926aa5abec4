import type Stripe from 'stripe';
import { HANDLED_EVENT_TYPES } from '../events/provider-objects.js';
import type { KeyedPrice } from '../plans/options.js';
import { nullIfMissing, type ProviderCall, retryIdempotently } from './client.js';
import { asList, asObject, asText, idOf, type Json } from './json.js';
import { fetchAllPages, malformed, PAGE_SIZE, requireId, requireList } from './responses.js';

/** Settings of the portal that this product has created. */
const OWN_PORTAL = { saas_backend: 'true' };

/** Whether settings of the portal are the default ones, or those of this product. */
export const isPortalInUse = ({ is_default: isDefault, metadata }: Json): boolean =>
  isDefault === true || asObject(metadata)['saas_backend'] === OWN_PORTAL.saas_backend;

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
  const portalConfigurations = async (): Promise<Json[]> => {
    const list = await call((stripe) =>
      stripe.billingPortal.configurations.list({ active: true, limit: PAGE_SIZE }),
    );
    return requireList(list).data.map(asObject);
  };

  return {
    /** Null if there is none. */
    async product(id: string): Promise<Json | null> {
      const found = await call((stripe) => stripe.products.retrieve(id).catch(nullIfMissing));
      return found && asObject(requireId(found, id));
    },

    async saveProduct({
      id,
      name,
      plan,
      isNew,
    }: {
      id: string;
      name: string;
      plan: string;
      isNew: boolean;
    }): Promise<undefined> {
      const values = { name, metadata: { plan } };
      await call((stripe) =>
        isNew
          ? stripe.products.create({ id, ...values })
          : stripe.products.update(id, { ...values, active: true }),
      );
    },

    /** Takes the lookup key over from another price. */
    async createPrice(
      { price, product, plan }: { price: KeyedPrice; product: string; plan: string },
      idempotencyKey: string,
    ): Promise<void> {
      const { lookupKey, amount, currency, interval, intervalCount = 1 } = price;
      const params: Stripe.PriceCreateParams = {
        product,
        currency,
        unit_amount: amount,
        lookup_key: lookupKey,
        transfer_lookup_key: true,
        metadata: { plan },
      };
      if (interval !== undefined) params.recurring = { interval, interval_count: intervalCount };
      await call((stripe) =>
        retryIdempotently(idempotencyKey, (key) => stripe.prices.create(params, { idempotencyKey: key })),
      );
    },

    /** Running subscriptions keep it. */
    async archivePrice(id: string): Promise<void> {
      requireId(await call((stripe) => stripe.prices.update(id, { active: false })), id);
    },

    /** The settings of the customer portal: the default ones, or those of `createPortalSettings`; undefined if there are none. */
    async portalSettings(): Promise<string | undefined> {
      const used = (await portalConfigurations()).filter(isPortalInUse);
      return idOf(used.find((one) => one['is_default'] === true) ?? used[0]);
    },

    async createPortalSettings(returnUrl: string | undefined): Promise<void> {
      const params: Stripe.BillingPortal.ConfigurationCreateParams = {
        metadata: OWN_PORTAL,
        features: {
          customer_update: { enabled: true, allowed_updates: ['address', 'tax_id'] },
          invoice_history: { enabled: true },
          payment_method_update: { enabled: true },
          subscription_cancel: { enabled: true, mode: 'at_period_end' },
        },
      };
      if (returnUrl !== undefined) params.default_return_url = returnUrl;
      await call((stripe) => stripe.billingPortal.configurations.create(params));
    },

    async webhookEndpoints(): Promise<Json[]> {
      const pages = await call((stripe) =>
        fetchAllPages((after) => stripe.webhookEndpoints.list({ limit: PAGE_SIZE, ...after })),
      );
      return pages.flatMap(({ data }) => asList(data));
    },

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
    async updateWebhookEndpoint(id: string, events: readonly string[]): Promise<void> {
      const changes = { enabled_events: asEvents(events), disabled: false };
      requireId(await call((stripe) => stripe.webhookEndpoints.update(id, changes)), id);
    },
  };
}

/** The SDK lists the types that existed when it was made. */
const asEvents = (events: readonly string[]) =>
  [...events] as Stripe.WebhookEndpointCreateParams.EnabledEvent[];

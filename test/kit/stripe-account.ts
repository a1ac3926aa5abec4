import type { Json } from '../../src/saas/billing/provider/json.js';
import type { Handler } from './stripe.js';
import { PRICES } from './stripe-objects.js';
import type { World } from './stripe-simulator.js';

/** What a seller sets up at the simulated provider. A repeated idempotency key returns the object of the first request. */
export function accountRoutes(world: World, prices: Map<string, Json>): Record<string, Handler> {
  const products = new Map<string, Json>();
  const portals: Json[] = [];
  const endpoints = new Map<string, Json>();
  const created = new Map<string, Json>();
  const once = (key: unknown, create: () => Json): Json => {
    const object = created.get(String(key)) ?? create();
    return created.set(String(key), object).get(String(key)) as Json;
  };
  const listed = (form: URLSearchParams, name: string) =>
    [...form].flatMap(([key, value]) => (key.startsWith(`${name}[`) ? [value] : []));
  const list = (data: Json[]): Json => ({ object: 'list', url: '/', has_more: false, data });

  return {
    'GET /v1/products/:id': (_call, id) => products.get(id) ?? null,
    'POST /v1/products': ({ form }) => {
      const product = { id: form.get('id'), object: 'product', name: form.get('name'), active: true };
      products.set(String(product.id), product);
      return product;
    },
    'POST /v1/products/:id': ({ form }, id) =>
      Object.assign(products.get(id) ?? {}, { name: form.get('name'), active: true }),
    'POST /v1/prices': ({ form, headers }) =>
      once(headers['idempotency-key'], () => {
        const lookup_key = form.get('lookup_key');
        for (const price of prices.values())
          if (price['lookup_key'] === lookup_key) Object.assign(price, { lookup_key: null });
        const interval = form.get('recurring[interval]');
        const price = {
          ...{ id: world.name('price'), object: 'price', active: true, lookup_key },
          ...{ product: form.get('product'), metadata: { plan: form.get('metadata[plan]') } },
          ...{ unit_amount: Number(form.get('unit_amount')), currency: form.get('currency') },
          recurring: interval && {
            interval,
            interval_count: Number(form.get('recurring[interval_count]')),
            usage_type: 'licensed',
          },
        };
        prices.set(price.id, price);
        return price;
      }),
    'POST /v1/prices/:id': ({ form }, id) =>
      Object.assign(prices.get(id) ?? {}, { active: form.get('active') === 'true' }),
    'GET /v1/billing_portal/configurations': () => list(portals),
    'POST /v1/billing_portal/configurations': ({ form }) => {
      const portal = {
        ...{ id: world.name('bpc'), is_default: false, active: true },
        metadata: { saas_backend: form.get('metadata[saas_backend]') },
      };
      portals.push(portal);
      return portal;
    },
    'GET /v1/webhook_endpoints': () => list([...endpoints.values()]),
    'POST /v1/webhook_endpoints': ({ form, headers }) =>
      once(headers['idempotency-key'], () => {
        const id = world.name('we');
        const endpoint = {
          ...{ id, url: form.get('url'), status: 'enabled' },
          enabled_events: listed(form, 'enabled_events'),
        };
        endpoints.set(id, endpoint);
        return { ...endpoint, secret: `whsec_${id}` };
      }),
    'POST /v1/webhook_endpoints/:id': ({ form }, id) => {
      const found = endpoints.get(id);
      if (!found) return null;
      const status = form.get('disabled') === 'true' ? 'disabled' : 'enabled';
      return Object.assign(found, { enabled_events: listed(form, 'enabled_events'), status });
    },
  };
}

/** The prices of a list with lookup keys. */
export function pricesOfKeys(query: URLSearchParams, prices: Map<string, Json>): Json[] | undefined {
  const keys = [...query].flatMap(([name, value]) => (name.startsWith('lookup_keys[') ? [value] : []));
  if (keys.length === 0) return undefined;
  const own = Object.entries(PRICES).map(([id, { lookupKey, amount }]) => ({
    ...{ id, object: 'price', active: true, lookup_key: lookupKey, unit_amount: amount, currency: 'eur' },
    ...{ product: `prod_${lookupKey}`, recurring: { interval: 'month', interval_count: 1 } },
  }));
  return [...prices.values(), ...own].filter(
    ({ active, lookup_key }) =>
      (active === true || query.get('active') !== 'true') && keys.includes(String(lookup_key)),
  );
}

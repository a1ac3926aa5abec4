import type { Json } from '../../src/saas/billing/provider/json.js';
import { type Handler, missing, type ProviderCall } from './stripe.js';
import { PRICES, subscriptionObject, type WorldSubscription } from './stripe-objects.js';
import type { World } from './stripe-simulator.js';

/** The part of the provider's API that changes subscriptions. */

export interface ChangeOptions {
  prices: ReadonlyMap<string, Json>;
  /** The code with which the bank declines a payment; undefined: it accepts. */
  isDeclined(): string | undefined;
}

export function changeRoutes(world: World, options: ChangeOptions): Record<string, Handler> {
  const find = (id: string): WorldSubscription | Json => {
    const found = world.subscriptions.get(id);
    if (!found) return missing('id');
    if (['canceled', 'incomplete_expired'].includes(found.status))
      return rejection('A canceled subscription can only update its cancellation_details and metadata.');
    return found;
  };
  const apply = (
    id: string,
    fieldsOf: (found: WorldSubscription) => Partial<WorldSubscription> | { error: Json },
  ): Json => {
    const found = find(id);
    if ('error' in found) return found;
    const subscription = found as WorldSubscription;
    const fields = fieldsOf(subscription);
    if ('error' in fields) return fields;
    world.change(subscription, fields);
    return subscriptionObject(subscription);
  };

  return {
    'POST /v1/subscriptions/:id': ({ form }, id) =>
      apply(id, (found) => updateOf(found, form, world, options)),
    'POST /v1/subscriptions/:id/resume': (_call, id) =>
      apply(id, ({ status }) =>
        status === 'paused' ? { status: 'active' } : rejection('This subscription is not paused.'),
      ),
    'DELETE /v1/subscriptions/:id': (_call, id) => {
      const found = find(id);
      if ('error' in found) return missing('id');
      return apply(id, () => ({ status: 'canceled', canceledAt: world.now, endedAt: world.now }));
    },
    'POST /v1/invoices/create_preview': ({ form }) => previewOf(form, world, options),
  };
}

const ITEM = 'items[0]';

function updateOf(
  found: WorldSubscription,
  form: URLSearchParams,
  { now }: World,
  { prices, isDeclined }: ChangeOptions,
): Partial<WorldSubscription> | { error: Json } {
  const price = form.get(`${ITEM}[price]`);
  if (price !== null) {
    const problem = itemProblem(found, form, ITEM, prices);
    if (problem) return problem;
    const quantity = Number(form.get(`${ITEM}[quantity]`) ?? found.quantity);
    const isInvoiced = found.status !== 'trialing' && (price !== found.price || quantity !== found.quantity);
    const code = isDeclined();
    if (isInvoiced && code !== undefined && form.get('payment_behavior') === 'error_if_incomplete')
      return { error: { type: 'card_error', code, message: 'Your card was declined.' } };
    return { price, quantity };
  }
  if (form.has('pause_collection[behavior]'))
    return { pauseBehavior: form.get('pause_collection[behavior]') };
  if (form.get('pause_collection') === '') return { pauseBehavior: null };
  if (form.get('cancel_at') === '') return { cancelAt: null, canceledAt: null };
  return form.get('cancel_at_period_end') === 'true'
    ? { cancelAtPeriodEnd: true, cancelAt: found.periodEnd, canceledAt: now }
    : { cancelAtPeriodEnd: false, cancelAt: null, canceledAt: null };
}

function itemProblem(
  found: WorldSubscription,
  form: URLSearchParams,
  field: string,
  prices: ReadonlyMap<string, Json>,
): { error: Json } | null {
  const price = form.get(`${field}[price]`) ?? '';
  if (form.get(`${field}[id]`) !== `si_${found.id.slice(4)}`)
    return rejection('Invalid subscription item.', `${field}[id]`);
  const special = prices.get(price);
  if (!special && !Object.hasOwn(PRICES, price)) return rejection('No such price.', `${field}[price]`);
  const isMetered = (special?.['recurring'] as Json | undefined)?.['usage_type'] === 'metered';
  if (isMetered && form.has(`${field}[quantity]`))
    return rejection('You cannot set the quantity for metered plans.', `${field}[quantity]`);
  if (special?.['object'] === 'refused') return rejection(String(special['message']), `${field}[price]`);
  return null;
}

function previewOf(form: URLSearchParams, world: World, { prices }: ChangeOptions): Json {
  const found = world.subscriptions.get(form.get('subscription') ?? '');
  if (!found) return missing('subscription');
  const field = 'subscription_details[items][0]';
  const problem = itemProblem(found, form, field, prices);
  if (problem) return problem;
  const price = String(form.get(`${field}[price]`));
  const amount = (PRICES[price]?.amount ?? 0) - (PRICES[found.price]?.amount ?? 0);
  const line = (sign: string, value: number) => ({
    object: 'line_item',
    description: sign,
    amount: value,
    quantity: Number(form.get(`${field}[quantity]`) ?? 1),
    period: { start: world.now, end: found.periodEnd },
  });
  return {
    id: 'upcoming_in_1',
    object: 'invoice',
    currency: 'eur',
    amount_due: Math.max(0, amount),
    total: amount,
    lines: {
      object: 'list',
      has_more: false,
      data: [
        line('Unused time', -(PRICES[found.price]?.amount ?? 0)),
        line('Remaining time', PRICES[price]?.amount ?? 0),
      ],
    },
  };
}

const rejection = (message: string, param?: string): { error: Json } => ({
  error: { type: 'invalid_request_error', message, ...(param !== undefined && { param }) },
});

/** Calls that changed something or tried to. */
export const isChange = ({ method, path }: ProviderCall): boolean =>
  method !== 'GET' && path.startsWith('/v1/subscriptions/');

import { isDeepStrictEqual } from 'node:util';
import type { Json } from '../../src/saas/billing/provider/json.js';
import { type Handler, missing, type ProviderCall } from './stripe.js';
import { PRICES, subscriptionObject, type WorldSubscription } from './stripe-objects.js';
import { rejection } from './stripe-schedules.js';
import type { World } from './stripe-simulator.js';

/** The part of the provider's API that changes subscriptions. */

export interface ChangeOptions {
  prices: ReadonlyMap<string, Json>;
  /** The code with which the bank declines a payment; undefined: it accepts. */
  isDeclined(): string | undefined;
  hasPaymentMethod(customer: string): boolean;
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
    'POST /v1/subscriptions/:id/pause': ({ form }, id) =>
      apply(id, ({ billingMode, schedule }) => {
        if (form.get('type') !== 'subscription') return rejection('Invalid type.', 'type');
        if (billingMode === 'classic') return rejection('Pausing requires the flexible billing mode.');
        if (schedule) return rejection('A subscription with a schedule cannot be paused.');
        return { status: 'paused', pauseReason: 'pause_requested' };
      }),
    'POST /v1/subscriptions/:id/resume': ({ form }, id) =>
      apply(id, (found) => {
        const { status, customer, latestInvoice } = found;
        if (status !== 'paused') return rejection('This subscription is not paused.');
        if (latestInvoice?.status === 'open') return rejection('The resumption invoice is open.');
        if (!found.pauseReason && !options.hasPaymentMethod(customer))
          return rejection('This customer has no attached payment source or default payment method.');
        const paysNow = form.get('payment_behavior') === 'resume_on_payment_success';
        const isPaid = paysNow && options.isDeclined() === undefined;
        const invoice = { id: world.name('in'), status: isPaid ? 'paid' : 'open' };
        if (paysNow && !isPaid) return { latestInvoice: invoice };
        const period = { periodStart: world.now, periodEnd: world.now + 30 * 86_400 };
        return { status: 'active', pauseReason: null, latestInvoice: invoice, ...period };
      }),
    'DELETE /v1/subscriptions/:id': (_call, id) => {
      const found = find(id);
      if ('error' in found) return missing('id');
      return apply(id, () => ({ status: 'canceled', canceledAt: world.now, endedAt: world.now }));
    },
    'POST /v1/invoices/create_preview': ({ form }) => previewOf(form, world, options),
  };
}

const ITEM = 'items[0]';

const PENDING_FOR = 23 * 3600;

function updateOf(
  found: WorldSubscription,
  form: URLSearchParams,
  world: World,
  { prices, isDeclined }: ChangeOptions,
): Partial<WorldSubscription> | { error: Json } {
  const { now } = world;
  if ([...form.keys()].some((name) => name.startsWith(ITEM))) {
    const isRemoved = form.get(`${ITEM}[deleted]`) === 'true';
    const problem = isRemoved ? null : itemProblem(found, form, ITEM, prices);
    if (problem) return problem;
    const fields = itemFields(found, form, () => world.name('si'));
    const isSame = isDeepStrictEqual({ ...found, ...fields }, found);
    const isInvoiced =
      found.status !== 'trialing' && !isSame && form.get('proration_behavior') === 'always_invoice';
    const code = isInvoiced ? isDeclined() : undefined;
    if (code === undefined) return { ...fields, pendingUpdate: null };
    if (form.get('payment_behavior') === 'error_if_incomplete')
      return { error: { type: 'card_error', code, message: 'Your card was declined.' } };
    const item = {
      id: form.get(`${ITEM}[id]`),
      price: form.get(`${ITEM}[price]`),
      quantity: Number(form.get(`${ITEM}[quantity]`)),
    };
    return {
      latestInvoice: { id: world.name('in'), status: 'open' },
      pendingUpdate: { expiresAt: now + PENDING_FOR, item },
    };
  }
  const promotion = form.get('discounts[0][promotion_code]');
  if (promotion !== null) return { discount: `di_${promotion}` };
  const coupon = form.get('discounts[0][coupon]');
  if (coupon !== null)
    return coupon === 'SPRING'
      ? { discount: 'dc_SPRING' }
      : (missing('discounts[0][coupon]') as { error: Json });
  const trialEnd = form.get('trial_end');
  if (trialEnd !== null) return { trialEnd: Number(trialEnd), periodEnd: Number(trialEnd) };
  if (form.get('pause_collection') === '') return { pauseBehavior: null };
  if (found.schedule)
    return rejection(
      `The subscription is managed by the subscription schedule ${found.schedule}, and updating any cancelation behavior directly is not allowed. Please update the schedule instead.`,
    );
  const cancelAt = form.get('cancel_at');
  if (cancelAt === '') return { cancelAt: null, canceledAt: null };
  if (cancelAt !== null) return { cancelAt: Number(cancelAt), canceledAt: now };
  // Of items with periods of their own, the earliest counts.
  const ends = [found.periodEnd, ...(found.addOns ?? []).flatMap(({ periodEnd }) => periodEnd ?? [])];
  return form.get('cancel_at_period_end') === 'true'
    ? { cancelAtPeriodEnd: true, cancelAt: Math.min(...ends), canceledAt: now }
    : { cancelAtPeriodEnd: false, cancelAt: null, canceledAt: null };
}

/** What a change of an item changes. */
function itemFields(
  found: WorldSubscription,
  form: URLSearchParams,
  name: () => string,
): Partial<WorldSubscription> {
  const { addOns = [] } = found;
  const id = form.get(`${ITEM}[id]`);
  const price = form.get(`${ITEM}[price]`) ?? found.price;
  const quantity = Number(form.get(`${ITEM}[quantity]`) ?? found.quantity);
  if (id === `si_${found.id.slice(4)}`) return { price, quantity };
  const others = addOns.filter((one) => one.id !== id);
  const isRemoved = form.get(`${ITEM}[deleted]`) === 'true';
  return { addOns: isRemoved ? others : [...others, { id: id ?? name(), price, quantity }] };
}

function itemProblem(
  found: WorldSubscription,
  form: URLSearchParams,
  field: string,
  prices: ReadonlyMap<string, Json>,
): { error: Json } | null {
  const price = form.get(`${field}[price]`) ?? '';
  const id = form.get(`${field}[id]`);
  const ids = [null, `si_${found.id.slice(4)}`, ...(found.addOns ?? []).map((one) => one.id)];
  if (!ids.includes(id)) return rejection('Invalid subscription item.', `${field}[id]`);
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

/** Calls that changed something or tried to. */
export const isChange = ({ method, path }: ProviderCall): boolean =>
  method !== 'GET' && /^\/v1\/(subscriptions|subscription_schedules|invoices\/in_\w+\/void)/.test(path);

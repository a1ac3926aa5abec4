import type { Json } from '../../src/saas/billing/provider/json.js';
import type { Handler } from './stripe.js';
import { itemObjects, subscriptionObject, type WorldSubscription } from './stripe-objects.js';
import type { World } from './stripe-simulator.js';

/** The subscription schedules of the simulated provider. */

export interface Phase {
  start_date: number;
  end_date: number;
  items: { price: string; quantity?: number }[];
  [name: string]: unknown;
}

export const phasesOf = (schedule: Json | undefined): Phase[] => (schedule?.['phases'] ?? []) as Phase[];

/** A schedule with the phases, as made in the dashboard or by the customer portal. */
export function attachSchedule(
  world: World,
  subscription: WorldSubscription,
  { phases, ...more }: { phases: Phase[] } & Json,
): string {
  const id = world.name('sub_sched');
  const schedule = {
    id,
    object: 'subscription_schedule',
    status: 'active',
    end_behavior: 'release',
    phases,
    ...more,
  };
  world.schedules.set(id, { ...schedule, subscription: subscription.id });
  subscription.schedule = id;
  return id;
}

/** The phase of a subscription as it is. */
export const presentPhase = (subscription: WorldSubscription): Phase => ({
  start_date: subscription.periodStart,
  end_date: subscription.periodEnd,
  discounts: [],
  items: itemObjects(subscription).map((item) => ({
    price: String((item['price'] as Json)['id']),
    quantity: Number(item['quantity']),
    discounts: [],
  })),
});

/** What the provider does at the end of a period. */
export function startPhases(world: World): void {
  for (const subscription of world.subscriptions.values()) {
    const schedule = world.schedules.get(subscription.schedule ?? '');
    const next = phasesOf(schedule).find(({ start_date }) => start_date === subscription.periodEnd);
    if (!schedule || !next || next.start_date > world.now) continue;
    const [main] = next.items;
    subscription.periodStart = subscription.periodEnd;
    subscription.periodEnd += 30 * 86_400;
    schedule['status'] = 'released';
    const { price = subscription.price, quantity = subscription.quantity } = main ?? {};
    world.change(subscription, { price, quantity, schedule: null });
  }
}

/** A subscription with the objects that a request expands. */
export function expanded(world: World, subscription: WorldSubscription, paths: readonly string[]): Json {
  const object = subscriptionObject(subscription);
  const { schedule, latestInvoice, discount } = subscription;
  if (paths.includes('schedule') && schedule) object['schedule'] = world.schedules.get(schedule);
  if (paths.includes('latest_invoice') && latestInvoice) object['latest_invoice'] = invoiceOf(latestInvoice);
  if (paths.includes('discounts.source.coupon') && discount) {
    const coupon = { id: 'SPRING', name: 'Launch', percent_off: 20 };
    const promotion_code = discount.startsWith('di_') ? discount.slice('di_'.length) : null;
    object['discounts'] = [{ id: discount, object: 'discount', promotion_code, source: { coupon } }];
  }
  return object;
}

const invoiceOf = ({ id, status }: { id: string; status: string }): Json => ({
  id,
  object: 'invoice',
  status,
  hosted_invoice_url: `https://invoice.example.test/${id}`,
});

export function scheduleRoutes(world: World): Record<string, Handler> {
  const ofInvoice = (id: string) =>
    [...world.subscriptions.values()].find(({ latestInvoice }) => latestInvoice?.id === id);
  return {
    'GET /v1/subscription_schedules/:id': (_call, id) => world.schedules.get(id) ?? null,
    'POST /v1/subscription_schedules': ({ form }) => {
      const subscription = world.subscriptions.get(form.get('from_subscription') ?? '');
      if (!subscription) return null;
      if (subscription.schedule) return rejection('This subscription has a schedule already.');
      const id = attachSchedule(world, subscription, { phases: [presentPhase(subscription)] });
      return world.schedules.get(id) ?? null;
    },
    'POST /v1/subscription_schedules/:id': ({ form }, id) => {
      const schedule = world.schedules.get(id);
      if (!schedule) return null;
      const phases = phasesIn(form);
      const [present] = phasesOf(schedule);
      if (phases[0]?.start_date !== present?.start_date)
        return rejection('The current phase must be included with its start date.', 'phases');
      return Object.assign(schedule, { phases, end_behavior: form.get('end_behavior') });
    },
    'POST /v1/subscription_schedules/:id/release': (_call, id) => {
      const schedule = world.schedules.get(id);
      if (schedule?.['status'] !== 'active') return schedule ? rejection('It is not active.') : null;
      const subscription = world.subscriptions.get(String(schedule['subscription']));
      Object.assign(schedule, { status: 'released', subscription: null });
      if (subscription) world.change(subscription, { schedule: null });
      return schedule;
    },
    'POST /v1/invoices/:id/void': (_call, id) => {
      const subscription = ofInvoice(id);
      if (!subscription?.latestInvoice) return null;
      if (subscription.latestInvoice.status !== 'open') return rejection('Only open invoices can be voided.');
      world.change(subscription, { pendingUpdate: null, latestInvoice: { id, status: 'void' } });
      return invoiceOf({ id, status: 'void' });
    },
  };
}

/** The phases of a form, which must follow each other. */
function phasesIn(form: URLSearchParams): Phase[] {
  const phases: Phase[] = [];
  for (let index = 0; form.has(`phases[${index}][items][0][price]`); index++) {
    const own = `phases[${index}]`;
    const items: Phase['items'] = [];
    for (let item = 0; form.has(`${own}[items][${item}][price]`); item++) {
      const quantity = form.get(`${own}[items][${item}][quantity]`);
      const price = String(form.get(`${own}[items][${item}][price]`));
      items.push({ price, ...(quantity !== null && { quantity: Number(quantity) }) });
    }
    const start_date = Number(form.get(`${own}[start_date]`));
    const end_date = Number(form.get(`${own}[end_date]`) ?? start_date + 30 * 86_400);
    phases.push({ start_date, end_date, items, discounts: [] });
  }
  return phases;
}

export const rejection = (message: string, param?: string): { error: Json } => ({
  error: { type: 'invalid_request_error', message, ...(param !== undefined && { param }) },
});

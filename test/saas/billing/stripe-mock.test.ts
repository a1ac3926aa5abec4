/**
 * Checks every request that billing sends against the provider's OpenAPI description: stripe-mock refuses unknown
 * fields. Install it with `go install github.com/stripe/stripe-mock@latest`; STRIPE_MOCK names it outside of PATH.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { createInterface } from 'node:readline';
import t, { type Test } from 'tap';
import { HANDLED_EVENT_TYPES } from '../../../src/saas/billing/events/provider-objects.js';
import { createPlans } from '../../../src/saas/billing/plans/plans.js';
import type { CheckoutParameters } from '../../../src/saas/billing/provider/checkout-sessions.js';
import { loadStripe } from '../../../src/saas/billing/provider/client.js';
import { examineAccount } from '../../../src/saas/billing/provider/examination.js';
import { createGateway, type Gateway } from '../../../src/saas/billing/provider/gateway.js';
import { withAllLines } from '../../../src/saas/billing/provider/responses.js';
import { PRORATIONS } from '../../../src/saas/billing/provider/subscription-changes.js';
import { readSnapshot } from '../../../src/saas/billing/subscription/snapshot.js';
import { KEY } from './kit.js';

const binary = process.env['STRIPE_MOCK'] ?? inPath('stripe-mock');
if (!binary && process.env['CI'] === 'true') throw new Error('There is no stripe-mock. Set STRIPE_MOCK.');

t.test(
  "every request matches Stripe's OpenAPI description",
  { skip: !binary && 'there is no stripe-mock' },
  async (t) => {
    const url = await stripeMock(t, binary as string);
    const gateway = createGateway(KEY, url);
    const headers = { authorization: `Bearer ${KEY}` };
    const calls: Record<keyof Gateway, () => Promise<unknown>> = {
      createCustomer: () =>
        gateway.createCustomer({ email: 'ada@example.test', name: 'Ada', ownerId: 'usr_1' }, 'key'),
      updateCustomer: () => gateway.updateCustomer('cus_1', { email: 'ada@example.test', name: '' }),
      async createCheckout() {
        const order = {
          customerId: 'cus_1',
          ownerId: 'usr_1',
          successUrl: 'https://app.example.test/?session_id={CHECKOUT_SESSION_ID}',
          cancelUrl: 'https://app.example.test/',
        };
        const item = { price: 'price_1', quantity: 2 };
        const page = { billingAddress: 'required', locale: 'de', automaticTax: true, taxIds: true } as const;
        for (const [key, checkout] of Object.entries({
          bare: { mode: 'subscription', item },
          full: { mode: 'subscription', item, trialDays: 14, promotionCodes: true, ...page },
          coupon: { mode: 'subscription', item, coupon: 'coupon_1' },
          code: { mode: 'subscription', item, promotionCode: 'promo_1' },
          payment: { mode: 'payment', item, ...page, invoice: true },
          address: { mode: 'payment', item, billingAddress: 'auto' },
          setup: { mode: 'setup', currency: 'eur', ...page },
        } as const)) {
          await gateway.createCheckout({ ...order, ...checkout }, key);
        }
        const edited: CheckoutParameters = {
          payment_method_collection: 'if_required',
          line_items: [
            { price: 'price_1', adjustable_quantity: { enabled: true } },
            { price: 'price_2', quantity: 1 },
          ],
          subscription_data: { description: 'Team' },
        };
        await gateway.createCheckout({ ...order, mode: 'subscription', item, edited }, 'edited');
      },
      async customerPages() {
        for await (const page of gateway.customerPages()) t.ok(page.length > 0);
      },
      createPortal: () => gateway.createPortal('cus_1', 'https://app.example.test/'),
      product: () => gateway.product('prod_1'),
      createProduct: () => gateway.createProduct('prod_1', 'Pro', 'pro'),
      updateProduct: () => gateway.updateProduct('prod_1', 'Pro', 'pro'),
      async createPrice() {
        const price = { lookupKey: 'pro_monthly', amount: 2900, currency: 'eur' };
        const made = { price, product: 'prod_1', plan: 'pro' };
        await gateway.createPrice(made, 'once');
        await gateway.createPrice(
          { ...made, price: { ...price, interval: 'month', intervalCount: 3 } },
          'month',
        );
      },
      archivePrice: () =>
        gateway.archivePrice('price_1').catch((error) => t.match(error.cause, /Another object/)),
      async pricesOfKeys() {
        for (const only of [{}, { active: true }] as const)
          await gateway.pricesOfKeys(['pro_monthly', 'pro_yearly'], only);
      },
      portalSettings: () => gateway.portalSettings(),
      createPortalSettings: () => gateway.createPortalSettings('https://app.example.test'),
      webhookEndpoints: () => gateway.webhookEndpoints(),
      // stripe-mock answers without the secret.
      async createWebhookEndpoint() {
        const endpoint = {
          url: 'https://app.example.test/api/billing/webhook',
          events: [...HANDLED_EVENT_TYPES],
        };
        await gateway
          .createWebhookEndpoint(endpoint, 'key')
          .catch((error) => t.match(error.cause, /without a secret/));
      },
      updateWebhookEndpoint: () =>
        gateway
          .updateWebhookEndpoint('we_1', [...HANDLED_EVENT_TYPES])
          .catch((error) => t.match(error.cause, /Another object/)),
      checkoutSession: () => gateway.checkoutSession('cs_1'),
      expireCheckout: () => gateway.expireCheckout('cs_1'),
      subscription: () => gateway.subscription('sub_1'),
      expandedSubscription: () => gateway.expandedSubscription('sub_1'),
      cardOf: () => gateway.cardOf('sub_1'),
      schedule: () => gateway.schedule('sub_sched_1'),
      promotionCode: () => gateway.promotionCode('LAUNCH20'),
      hasPaymentMethod: () => gateway.hasPaymentMethod('cus_1'),
      upcomingInvoice: () => gateway.upcomingInvoice('sub_1'),
      price: () => gateway.price('price_1'),
      async chargeOf() {
        const payment = { ownerId: 'usr_1', status: 'paid', at: 1, reportedBy: {}, rev: 1 } as const;
        t.match(await gateway.chargeOf({ ...payment, id: 'ch_1' }), { id: 'ch_1', amount: Number });
        for (const id of ['pi_1', 'in_1']) await gateway.chargeOf({ ...payment, id });
      },
      refund: () => gateway.refund({ charge: 'ch_1', amount: 100, reason: 'duplicate' }, 'key'),
      event: () => gateway.event('evt_1'),
      async changeSubscription() {
        const item = { itemId: 'si_1', priceId: 'price_1' };
        for (const proration of PRORATIONS)
          await gateway.changeSubscription('sub_1', { kind: 'item', item, proration });
        const proration = 'always_invoice';
        await gateway.changeSubscription('sub_1', {
          kind: 'item',
          item: { ...item, quantity: 2 },
          proration,
        });
        const items = [{ priceId: 'price_1', quantity: 2 }, { priceId: 'price_2' }];
        await gateway.changeSubscription('sub_1', { kind: 'schedule', items, at: Date.UTC(2040, 0, 1) });
        await gateway.changeSubscription('sub_1', { kind: 'item', item: { priceId: 'price_2' }, proration });
        await gateway.changeSubscription('sub_1', { kind: 'remove-item', itemId: 'si_2', proration });
        await gateway.changeSubscription('sub_1', {
          kind: 'discount',
          discount: { promotion_code: 'promo_1' },
        });
        await gateway.changeSubscription('sub_1', { kind: 'discount', discount: { coupon: 'SPRING' } });
        await gateway.changeSubscription('sub_1', { kind: 'trial-end', at: Date.UTC(2040, 0, 1) });
        await gateway.changeSubscription('sub_1', { kind: 'release', scheduleId: 'sub_sched_1' });
        await gateway.changeSubscription('sub_1', { kind: 'void', invoiceId: 'in_1' });
        await gateway.changeSubscription('sub_1', { kind: 'cancel-at', at: Date.UTC(2040, 0, 1) });
        for (const kind of [
          'cancel-at-period-end',
          'keep',
          'clear-cancel-at',
          'cancel-now',
          'collect',
        ] as const)
          await gateway.changeSubscription('sub_1', { kind });
        // Since API version 2026-09-30, which stripe-mock may not know yet.
        const { status } = await fetch(`${url}/v1/subscriptions/sub_1/pause`, { method: 'POST', headers });
        if (status === 404) return;
        for (const kind of ['pause', 'resume'] as const) await gateway.changeSubscription('sub_1', { kind });
      },
      async previewChange() {
        const item = { itemId: 'si_1', priceId: 'price_1', quantity: 2 };
        const invoice = await gateway.previewChange('sub_1', item, 'always_invoice');
        t.match(invoice, { amount_due: Number, total: Number, currency: String, lines: { data: Array } });
        const stripe = await loadStripe(KEY, url, 4500);
        const part = { id: 'in_1', lines: { has_more: true, data: [] } };
        t.match(await withAllLines((work) => work(stripe), part), { lines: { data: [{ amount: Number }] } });
      },
      async createMeterEvent() {
        const event = {
          identifier: 'use_1',
          meter: 'requests',
          customerId: 'cus_1',
          quantity: 2,
          at: Date.now(),
        };
        t.same(await gateway.createMeterEvent(event), { outcome: 'accepted' });
      },
      subscriptionsOf: () => gateway.subscriptionsOf('cus_1'),
      lineItems: () => gateway.lineItems('cs_1'),
      customersOf: () => gateway.customersOf('usr_1'),
      charge: () => gateway.charge('ch_1'),
      cancelSubscriptions: () => gateway.cancelSubscriptions('cus_1'),
      invoicesOf: () => gateway.invoicesOf('cus_1'),
      prices: () => gateway.prices(),
      async eventPages() {
        const span = { from: Date.UTC(2040, 0, 1), to: Date.UTC(2040, 0, 2) };
        for await (const page of gateway.eventPages(span, [...HANDLED_EVENT_TYPES])) t.ok(page.length > 0);
      },
    };
    for (const [name, call] of Object.entries(calls)) await t.resolves(call(), name);

    const { objects } = await gateway.subscriptionsOf('cus_1');
    const snapshot = readSnapshot(
      objects[0] ?? {},
      createPlans({}, () => {}),
      null,
    );
    t.match(snapshot, { status: String, priceId: String, customerId: String, currentPeriodEnd: Number });

    const prices = new Map([['price_1', 'pro']]);
    const webhookUrl = 'https://app.example.test/api/billing/webhook';
    const problems = await examineAccount({ key: KEY, apiUrl: url, prices, lookupKeys: ['pro'], webhookUrl });
    t.same(
      problems.map(({ about }) => about),
      ['webhook endpoint', 'price pro'],
      'every request is answered',
    );

    const strange = await fetch(`${url}/v1/customers`, {
      method: 'POST',
      headers,
      body: new URLSearchParams({ favourite_colour: 'blue' }),
    });
    t.equal(strange.status, 400, 'a field that the provider does not know would be noticed');
  },
);

function inPath(name: string): string | undefined {
  const files = (process.env['PATH'] ?? '').split(delimiter).map((folder) => join(folder, name));
  return files.find((file) => {
    try {
      accessSync(file, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** Starts it on a free port and returns its address. */
async function stripeMock(t: Test, file: string): Promise<string> {
  const child: ChildProcess = spawn(file, ['-http-addr', '127.0.0.1:0', '-https-addr', '127.0.0.1:0'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const closed = once(child, 'close');
  t.teardown(async () => {
    child.kill();
    await closed;
  });
  if (!child.stdout) throw new Error('stripe-mock has no output');
  for await (const line of createInterface(child.stdout)) {
    const port = /Listening for HTTP .*:(\d+)/.exec(line)?.[1];
    if (port) return `http://127.0.0.1:${port}`;
  }
  throw new Error('stripe-mock ended before it listened');
}

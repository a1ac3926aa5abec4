import { readFileSync } from 'node:fs';
import t from 'tap';
import { DAY } from '../../../src/core/kernel/clock.js';
import { packageFile } from '../../../src/core/kernel/package-files.js';
import { HANDLED_EVENT_TYPES } from '../../../src/saas/billing/events/provider-objects.js';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import { eventOf, invoiceEvent, items, mailsOf, shop, subscriptionEvent } from './kit.js';

/** The e-mails about payments. */

const NOW = Date.UTC(2040, 0, 1) / 1000;
const PAGE = 'https://invoice.stripe.com/i/acct_1/live_1';

t.test('each payment queues one receipt with the page of its invoice', async (t) => {
  const { app, deliver, buyer } = await shop(t);
  const ada = await buyer();
  const paid = (id: string, more: Json = {}) => {
    const fields = { id, customer: ada.customer, hosted_invoice_url: PAGE, ...more };
    return [
      invoiceEvent('succeeded', 1, fields),
      { ...invoiceEvent('succeeded', 1, fields), type: 'invoice.paid' },
    ];
  };
  const session = (id: string, more: Json = {}) =>
    eventOf('checkout.session.completed', 2, {
      id,
      customer: ada.customer,
      mode: 'payment',
      payment_status: 'paid',
      amount_total: 500,
      currency: 'eur',
      payment_intent: `pi_${id}`,
      ...more,
    });
  for (const event of [
    ...paid('in_1'),
    ...paid('in_1'),
    ...paid('in_free', { amount_paid: 0, amount_due: 0 }),
    ...paid('in_plain', { hosted_invoice_url: 'http://invoice.stripe.com/i' }),
    session('cs_1'),
    session('cs_1'),
    session('cs_late', { payment_status: 'unpaid' }),
    session('cs_free', { amount_total: 0 }),
    session('cs_invoiced', { invoice: 'in_1' }),
  ])
    await deliver(event);
  const receipts = await mailsOf(t, app, 'receipt');
  t.same(receipts.map(({ key, values }) => [key, values['amount'], values['invoiceLink']]).sort(), [
    ['receipt:in_1', '€29.00', PAGE],
    ['receipt:in_plain', '€29.00', undefined],
    ['receipt:pi_cs_1', '€5.00', undefined],
  ]);
  t.match(receipts[0], { to: ada.email, userId: ada.id, values: { paidOn: '1 January 2040' } });
});

t.test('a renewal is announced if its period is a year and it is charged', async (t) => {
  const { app, api, deliver, buyer, subscribe } = await shop(t);
  const ada = await buyer();
  const start = NOW + 30 * 86_400;
  const upcoming = (subscription: string, more: Json = {}, days = 365) => {
    const { id: _, ...object } = { id: undefined, object: 'invoice', customer: ada.customer, subscription };
    const lines = {
      data: [{ period: { start: start - 5, end: start } }, { period: { start, end: start + days * 86_400 } }],
    };
    const terms = { amount_due: 9900, currency: 'eur', collection_method: 'charge_automatically' };
    return eventOf('invoice.upcoming', 5, { ...object, ...terms, period_end: start, lines, ...more });
  };
  const stored = async (more: Json) => {
    const { id } = subscribe(ada, { status: 'active' });
    await deliver(
      subscriptionEvent('created', 0, {
        id,
        customer: ada.customer,
        status: 'active',
        items: items(),
        ...more,
      }),
    );
    return id;
  };
  const yearly = await stored({});
  t.equal(await deliver(upcoming(yearly)), 'processed', 'without an ID, as before API version 2025-03-31');
  for (const event of [
    upcoming(yearly, { id: 'upcoming_in_1' }),
    upcoming(await stored({}), {}, 31),
    upcoming(await stored({}), { amount_due: 0 }),
    upcoming(await stored({}), { collection_method: 'send_invoice' }),
    upcoming(await stored({ cancel_at_period_end: true })),
    upcoming(await stored({ cancel_at: start })),
    upcoming(await stored({ status: 'trialing', trial_end: start })),
  ])
    t.equal(await deliver(event), 'processed');
  const [mail, ...others] = await mailsOf(t, app, 'renewal');
  t.same(others, []);
  t.match(mail, {
    key: `renewal:${yearly}:${start * 1000}`,
    values: { amount: '€99.00', renewsOn: '31 January 2040', plan: 'pro' },
  });
  const [payment] = (await mailsOf(t, app)).filter(({ template }) => template === 'receipt');
  t.equal(payment, undefined, 'an upcoming invoice is no payment');
  t.equal(api.calls.filter(({ path }) => path === `/v1/subscriptions/${yearly}`).length > 0, true);
});

t.test(
  'a card that expires before it is charged, or at the end of the month, is reported once',
  async (t) => {
    const { app, api, deliver, buyer, subscribe } = await shop(t);
    const ada = await buyer();
    const withCard = async (exp_month: number, exp_year: number) => {
      const card = { id: `pm_${exp_month}_${exp_year}`, card: { last4: '4242', exp_month, exp_year } };
      const { id } = subscribe(ada, { card });
      await deliver(
        subscriptionEvent('created', 0, { id, customer: ada.customer, status: 'active', items: items() }),
      );
      return id;
    };
    const upcoming = (subscription: string) =>
      eventOf('invoice.upcoming', 5, {
        customer: ada.customer,
        subscription,
        amount_due: 2900,
        // In February.
        next_payment_attempt: NOW + 40 * 86_400,
        lines: { data: [] },
      });
    const expiring = await withCard(1, 2040);
    for (const event of [
      upcoming(expiring),
      upcoming(expiring),
      upcoming(await withCard(2, 2040)),
      upcoming(await withCard(12, 2041)),
      eventOf('customer.source.expiring', 6, {
        id: 'card_1',
        object: 'card',
        customer: ada.customer,
        last4: '1881',
        exp_month: 1,
        exp_year: 2040,
      }),
    ])
      t.equal(await deliver(event), 'processed');
    const cards = await mailsOf(t, app, 'card-expiring');
    t.same(cards.map(({ values: { card, validUntil } }) => [card, validUntil]).sort(), [
      ['1881', '31 January 2040'],
      ['4242', '31 January 2040'],
    ]);

    api.fault = () => ({ status: 500, body: '{"error":{"type":"api_error"}}' });
    t.equal(await deliver(upcoming(await withCard(1, 2040))), 'processed', 'an outage loses only this mail');
  },
);

t.test(
  'a payment that the bank wants confirmed is mailed with its page, once with its failure',
  async (t) => {
    const { app, deliver, buyer } = await shop(t);
    const ada = await buyer();
    const about = (id: string, more: Json = {}) => ({
      id,
      customer: ada.customer,
      amount_due: 2900,
      currency: 'eur',
      attempt_count: 1,
      billing_reason: 'subscription_cycle',
      hosted_invoice_url: PAGE,
      ...more,
    });
    const action = (at: number, object: Json) => eventOf('invoice.payment_action_required', at, object);
    await deliver(invoiceEvent('succeeded', 9, about('in_paid', { amount_paid: 2900 })));
    for (const event of [
      action(1, about('in_1')),
      invoiceEvent('failed', 1, about('in_1', { next_payment_attempt: NOW + 86_400 })),
      action(1, about('in_1')),
      action(2, about('in_1', { attempt_count: 2 })),
      action(2, about('in_1', { attempt_count: 3 })),
      action(1, about('in_first', { billing_reason: 'subscription_create' })),
      action(1, about('in_paid')),
    ])
      await deliver(event);
    const mails = (await mailsOf(t, app)).filter(({ template }) => /^payment-/.test(template));
    t.same(mails.map(({ key, template, values }) => [key, template, values['invoiceLink']]).sort(), [
      ['payment-action:in_1', 'payment-action', PAGE],
      ['payment-failed:in_1:first', 'payment-action', PAGE],
    ]);
    const ended = Math.max(...mails.map(({ expiresAt }) => expiresAt));
    t.equal(ended, (NOW + 2) * 1000 + 3 * DAY, 'a mail about an old event is not sent');
  },
);

t.test('only the mails that the option names are queued', async (t) => {
  const { app, deliver, buyer } = await shop(t, { billingMails: ['payment-failed'] });
  const ada = await buyer();
  await deliver(invoiceEvent('succeeded', 1, { id: 'in_1', customer: ada.customer }));
  await deliver(invoiceEvent('failed', 1, { id: 'in_2', customer: ada.customer }));
  await deliver(subscriptionEvent('deleted', 2, { id: 'sub_1', customer: ada.customer, status: 'canceled' }));
  const queued = (await mailsOf(t, app)).map(({ template }) => template);
  t.same(queued, ['welcome', 'payment-failed']);
});

t.test('a cancelled trial is not announced as converting to a paid plan', async (t) => {
  const { app, deliver, buyer } = await shop(t);
  const ada = await buyer();
  const end = 2_209_000_000;
  const cases: [name: string, told: Json, isAnnounced: boolean][] = [
    ['goes_on', {}, true],
    ['cancelled', { cancel_at_period_end: true }, false],
    ['ends_with_it', { cancel_at: end }, false],
    ['ends_later', { cancel_at: end + 86_400 }, true],
  ];
  for (const [id, told] of cases) {
    const object = { id, customer: ada.customer, status: 'trialing', trial_end: end, items: items() };
    await deliver(subscriptionEvent('created', 0, object));
    t.equal(await deliver(subscriptionEvent('trial_will_end', 1, { ...object, ...told })), 'processed');
  }
  const mails = await mailsOf(t, app, 'trial-ending');
  t.same(
    mails.map(({ key }) => key.split(':')[1]).sort(),
    cases.flatMap(([name, , isAnnounced]) => (isAnnounced ? [name] : [])).sort(),
  );
  t.same(new Set(mails.map(({ values }) => values['plan'])), new Set(['pro']));
});

t.test('the guide lists the event types of the webhook endpoint', (t) => {
  const guide = readFileSync(packageFile('docs/saas/billing-webhooks.md'), 'utf8');
  const start = guide.indexOf('| Event type |');
  const rows = guide.slice(start, guide.indexOf('\n\n', start));
  const listed = rows.split('\n').flatMap((row) => {
    const [first = '', ...others] = [...(row.split('|')[1] ?? '').matchAll(/`([\w.]+)`/g)].map(
      ([, name = '']) => name,
    );
    const full = (name: string) => (name.startsWith('.') ? first.replace(/\.\w+$/, name) : name);
    return first === '' ? [] : [first, ...others.map(full)];
  });
  t.same(listed.sort(), [...HANDLED_EVENT_TYPES].sort());
  t.end();
});

import t, { type Test } from 'tap';
import type { SaasHooks } from '../../../src/saas/auth/hooks.js';
import { shop } from './kit.js';

/** The hook with which the operator edits the parameters of checkout sessions. */

type Hook = NonNullable<SaasHooks['checkoutSession']>;

async function place(t: Test, checkoutSession: Hook) {
  const plans = { pro: { prices: ['price_pro'], checkout: { trialDays: 14 } } };
  const opened = await shop(t, { billing: { plans }, hooks: { checkoutSession, timeoutMs: 50 } });
  const ada = await opened.buyer();
  const order = () => opened.buy(ada, { priceId: 'price_pro', quantity: 2 });
  const sent = () => {
    const calls = opened.api.calls.filter(
      ({ method, path }) => method === 'POST' && path === '/v1/checkout/sessions',
    );
    return Object.fromEntries(calls.at(-1)?.form ?? []);
  };
  return { ...opened, ada, order, sent };
}

t.test('a hook adds to the parameters of a session, which stays the same for the same order', async (t) => {
  const orders: unknown[] = [];
  const { order, sent, ada } = await place(t, ({ parameters, owner, order }) => {
    if (order.mode !== 'setup') orders.push([owner, order]);
    return {
      ...parameters,
      payment_method_collection: 'if_required',
      line_items: [
        { ...parameters.line_items?.[0], adjustable_quantity: { enabled: true } },
        { price: 'price_setup', quantity: 1 },
      ],
      metadata: { ...parameters.metadata, campaign: 'spring' },
      subscription_data: { ...parameters.subscription_data, description: 'Team' },
    };
  });
  const [first, again] = [await order(), await order()];
  t.match(sent(), {
    payment_method_collection: 'if_required',
    'line_items[0][price]': 'price_pro',
    'line_items[0][quantity]': '2',
    'line_items[0][adjustable_quantity][enabled]': 'true',
    'line_items[1][price]': 'price_setup',
    'metadata[campaign]': 'spring',
    'metadata[userId]': ada.id,
    'subscription_data[description]': 'Team',
    'subscription_data[metadata][userId]': ada.id,
    'subscription_data[trial_period_days]': '14',
  });
  t.same(orders[0], [
    { id: ada.id, email: ada.email },
    { priceId: 'price_pro', quantity: 2, mode: 'subscription' },
  ]);
  t.equal(first.status, 200);
  t.same(again.body, first.body);
});

t.test(
  'whose session it is, what it sells, the trial and the return are not the choice of the hook',
  async (t) => {
    const { order, sent, ada } = await place(t, ({ parameters, order }) =>
      order.mode === 'setup'
        ? parameters
        : {
            customer: 'cus_other',
            customer_email: 'eve@example.test',
            client_reference_id: 'usr_other',
            mode: 'payment',
            metadata: { userId: 'usr_other' },
            line_items: [{ price: 'price_free', quantity: 1 }],
            success_url: 'https://evil.example.test/',
            cancel_url: 'https://evil.example.test/',
            subscription_data: { trial_period_days: 700, trial_end: 4e9, metadata: { userId: 'usr_other' } },
          },
    );
    t.equal((await order()).status, 200);
    const { success_url, cancel_url, ...params } = sent();
    t.match([success_url, cancel_url], [/session_id=\{CHECKOUT_SESSION_ID\}/, /checkout=cancelled/]);
    t.notMatch(`${success_url}${cancel_url}`, /evil/);
    t.match(params, {
      customer: ada.customer,
      client_reference_id: ada.id,
      mode: 'subscription',
      'metadata[userId]': ada.id,
      'line_items[0][price]': 'price_pro',
      'subscription_data[metadata][userId]': ada.id,
      'subscription_data[trial_period_days]': '14',
    });
    t.notOk('customer_email' in params || 'subscription_data[trial_end]' in params);
  },
);

t.test('an embedded page is opened with its secret, and returns to the application', async (t) => {
  const { order, sent } = await place(t, ({ parameters }) => ({ ...parameters, ui_mode: 'embedded_page' }));
  const { body } = await order();
  t.same(body.data.url, '');
  t.equal(body.data.clientSecret, `${body.data.sessionId}_secret`);
  t.same((await order()).body, body, 'the open session is embedded again');
  t.match(sent(), { ui_mode: 'embedded_page', return_url: /session_id=/ });
  t.notOk('success_url' in sent() || 'cancel_url' in sent());
});

t.test('a hook that fails or is late opens no session', async (t) => {
  let act: Hook = ({ parameters }) => parameters;
  const { order, api } = await place(t, (session) => act(session));
  const before = api.sessions.size;
  act = () => {
    throw new Error('broken');
  };
  t.equal((await order()).status, 500);
  act = () => null as never;
  t.equal((await order()).status, 500);
  act = () => new Promise<never>(() => undefined);
  t.equal((await order()).status, 503);
  t.equal(api.sessions.size, before);
});

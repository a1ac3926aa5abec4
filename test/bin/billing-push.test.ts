import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { HANDLED_EVENT_TYPES } from '../../src/saas/billing/events/provider-objects.js';
import type { Json } from '../../src/saas/billing/provider/json.js';
import { runProgram } from '../kit/command-line.js';
import { stripeApi } from '../kit/stripe.js';
import { World } from '../kit/stripe-simulator.js';
import { temporaryFolder } from '../kit/tmp.js';

/** The account at the payment provider, as the command sets it up. */

const monthly = { lookupKey: 'pro_monthly', amount: 2900, currency: 'eur', interval: 'month' };
const PLANS = {
  free: { limits: { projects: 1 } },
  pro: { name: 'Professional', prices: [monthly, 'price_1Old'] },
  pack: { prices: [{ lookupKey: 'pack', amount: 900, currency: 'eur' }], purchase: true },
};

async function seller(t: Test) {
  const api = await stripeApi(new World(1, Math.floor(Date.now() / 1000)));
  t.teardown(() => api.close());
  const cwd = temporaryFolder(t);
  const push = (args: string[], more: Record<string, string> = {}) => {
    const env = {
      ...{ PUBLIC_URL: 'https://app.example.test/shop', PAYMENT_SECRET_KEY: 'sk_test_1' },
      ...{ PAYMENT_API_URL: api.url, ...more },
    };
    return runProgram('saas-backend', ['billing', 'push', ...args], env, { cwd });
  };
  const writes = () => api.calls.filter(({ method }) => method === 'POST').length;
  const endpoint = async (body?: URLSearchParams): Promise<Json> => {
    const url = `${api.url}/v1/webhook_endpoints`;
    const [found] = ((await (await fetch(url)).json()) as { data: Json[] }).data;
    if (!body) return found as Json;
    return (await fetch(`${url}/${found?.['id']}`, { method: 'POST', body })).json() as Promise<Json>;
  };
  return { api, cwd, push, writes, endpoint };
}

t.test('products, prices, the portal and the endpoint are created once', async (t) => {
  const { api, cwd, push, writes, endpoint } = await seller(t);
  writeFileSync(join(cwd, 'plans.json'), JSON.stringify(PLANS));
  const dry = await push(['--plans', 'plans.json', '--dry-run']);
  t.equal(dry.code, 0, dry.err);
  for (const line of [
    ...['+ product plan_pro', '    name Professional', '+ product plan_pack', '+ customer portal'],
    ...['+ price pro_monthly\n    2900 eur every 1 month', '+ price pack\n    900 eur once'],
    ...['+ webhook endpoint https://app.example.test/shop/api/billing/webhook', ...HANDLED_EVENT_TYPES],
  ])
    t.ok(dry.out.includes(line), line);
  t.equal(writes(), 0);

  const made = await push(['--plans', 'plans.json', '--yes']);
  t.match(made, { code: 0, out: /\nDone\.\nPAYMENT_WEBHOOK_SECRET=whsec_we_\w+\n$/, err: /shown once/ });
  const [first] = [...api.prices.values()];
  t.match(first, { lookup_key: 'pro_monthly', unit_amount: 2900, metadata: { plan: 'pro' } });
  const count = writes();
  t.match(await push(['--plans', 'plans.json', '--yes']), { code: 0, out: 'Nothing to do.\n', err: '' });

  // A module of the application, with a higher price.
  const raised = { ...PLANS, pro: { name: 'Pro', prices: [{ ...monthly, amount: 3900 }] } };
  writeFileSync(join(cwd, 'plans.mjs'), `export const plans = ${JSON.stringify(raised)};`);
  const { json } = await push(['--plans', 'plans.mjs', '--yes', '--json']);
  t.match(json, {
    applied: true,
    changes: [
      { action: 'update', about: 'product plan_pro' },
      {
        action: 'update',
        details: ['2900 eur every 1 month → 3900 eur every 1 month, for new subscriptions'],
      },
    ],
  });
  t.equal(writes(), count + 3);
  t.match(first, { active: false, lookup_key: null }, 'the former price');
  t.match(await push(['--plans', 'plans.mjs', '--yes']), { out: 'Nothing to do.\n' });

  const events = { 'enabled_events[0]': 'invoice.paid', 'enabled_events[1]': 'payout.paid' };
  await endpoint(new URLSearchParams({ ...events, disabled: 'true' }));
  const repaired = await push(['--plans', 'plans.mjs', '--yes']);
  t.match(repaired, {
    code: 0,
    out: /~ webhook[^\n]*\n {4}enable\n[\s\S]*invoice\.upcoming[\s\S]*Done\.\n$/,
  });
  t.notMatch(repaired.out, /whsec_|invoice\.paid\n/);
  const { enabled_events: types, status } = await endpoint();
  t.same((types as string[]).toSorted(), [...HANDLED_EVENT_TYPES, 'payout.paid'].toSorted(), 'its own stay');
  t.equal(status, 'enabled');
});

t.test('a price that was archived by hand is created again', async (t) => {
  const { api, cwd, push } = await seller(t);
  writeFileSync(join(cwd, 'plans.json'), JSON.stringify(PLANS));
  const run = () => push(['--plans', 'plans.json', '--yes']);
  t.match(await run(), { code: 0 });
  const [first = {}] = [...api.prices.values()];
  first['active'] = false;
  t.match(await run(), { code: 0, out: '+ price pro_monthly\n    2900 eur every 1 month\nDone.\n' });
  const sold = [...api.prices.values()].filter(
    ({ lookup_key, active }) => lookup_key === 'pro_monthly' && active,
  );
  t.match(sold, [{ unit_amount: 2900 }]);
  t.match(await run(), { out: 'Nothing to do.\n' });
});

t.test('nothing is changed without consent, or with a live key by mistake', async (t) => {
  const { cwd, push, writes } = await seller(t);
  const live = { PAYMENT_SECRET_KEY: 'sk_live_1' };
  t.match(await push([]), { code: 2, err: /no terminal/ });
  t.match(await push(['--yes'], live), { code: 1, err: /add --live/ });
  t.match(await push(['--yes'], { PAYMENT_SECRET_KEY: '' }), { code: 1, err: /not configured/i });
  t.match(await push(['--yes', '--prefix', 'api']), { code: 2, err: /--prefix takes a path/ });
  t.match(await push(['--yes', '--plans', 'none.json']), { code: 1, err: /none\.json cannot be read/ });
  writeFileSync(join(cwd, 'wrong.json'), JSON.stringify({ pro: { prices: [{ ...monthly, amount: -1 }] } }));
  t.match(await push(['--yes', '--plans', 'wrong.json']), { code: 1, err: /amount/ });
  t.equal(writes(), 0);
  const local = await push(['--dry-run'], { PUBLIC_URL: 'http://localhost:3000' });
  t.match(local, { code: 0, out: '+ customer portal', err: /stripe listen/ });
  t.notMatch(local.out, /webhook/);
  t.match(
    await push(['--dry-run'], live),
    { code: 0, out: /\+ webhook endpoint/ },
    'reading changes nothing',
  );
  t.match(await push(['--yes', '--live', '--prefix', '/'], live), { code: 0, out: /shop\/billing\/webhook/ });
});

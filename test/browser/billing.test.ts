import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { AxeResults } from 'axe-core';
import type { BrowserContext, Page } from 'playwright-core';
import t, { type Test } from 'tap';
import { PASSWORD, saasApp } from '../kit/app.js';
import { onChromium } from '../kit/chromium.js';
import type { WorldSubscription } from '../kit/stripe-objects.js';
import { attachSchedule, presentPhase } from '../kit/stripe-schedules.js';
import { deliver, eventOf, KEY, provider } from '../saas/billing/kit.js';

/** The page of a user's plan, with each combination of what a user can hold. */

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** The states of a subscription at the provider; `null`: there is none. */
const STATES: Record<string, Partial<WorldSubscription> | null> = {
  none: null,
  active: {},
  trialing: { status: 'trialing' },
  ending: { cancelAtPeriodEnd: true },
  changing: {},
  past_due: { status: 'past_due', openInvoice: 'in_open' },
  unpaid: { status: 'unpaid', openInvoice: 'in_open' },
  incomplete: { status: 'incomplete', openInvoice: 'in_open' },
  paused: { status: 'paused' },
};

/** What users hold beside it: everything, each alone, nothing. */
const BESIDE = [0, 1, 2, 3, 4, 5, 6, 7].map((bits) => ({
  addOn: (bits & 1) > 0,
  lifetime: (bits & 2) > 0,
  granted: (bits & 4) > 0,
}));

const PLANS = {
  basic: { name: 'Basic', prices: ['price_basic'] },
  pro: { name: 'Pro', prices: ['price_pro'] },
  storage: { name: 'Storage', prices: ['price_storage'], independent: true },
  lifetime: { name: 'Lifetime', prices: ['price_lifetime'], purchase: true, independent: true },
  guest: { name: 'Guest' },
};

async function seller(t: Test) {
  const api = await provider(t);
  const recurring = { interval: 'month', interval_count: 1, usage_type: 'licensed' };
  const sold = { object: 'price', active: true, lookup_key: 'sold', currency: 'eur', unit_amount: 500 };
  api.prices.set('price_storage', { id: 'price_storage', ...sold, recurring });
  api.prices.set('price_lifetime', { id: 'price_lifetime', ...sold });
  const app = await saasApp(t, {
    ...({ publicUrl: undefined, accountPages: true } as object),
    ...{ paymentSecretKey: KEY, paymentApiUrl: api.url, billing: { plans: PLANS }, limits: false },
  });
  const origin = (await app.listen()).replace('127.0.0.1', 'localhost');
  return { api, app, origin };
}

type Seller = Awaited<ReturnType<typeof seller>>;

/** A user who holds this. */
async function holder({ api, app }: Seller, state: string, beside: (typeof BESIDE)[number], at: number) {
  const user = await app.signUp();
  const token = user.accessToken;
  const post = (path: string, body: object) => app.request('POST', `/api/billing/${path}`, { token, body });
  const opened = await post('create-checkout-session', { mode: 'setup' });
  const customer = String(api.sessions.get(opened.body.data.sessionId)?.['customer']);
  const more = STATES[state];
  if (more) {
    const truth = api.world.subscribe(customer, user.id, true);
    Object.assign(truth, { status: 'active', price: 'price_pro', quantity: 1, trialEnd: null }, more);
    if (state === 'trialing') truth.trialEnd = truth.periodEnd;
    if (beside.addOn) truth.addOns = [{ id: `si_add_${at}`, price: 'price_storage' }];
    if (state === 'changing') {
      const items = [{ price: 'price_basic', quantity: 1, discounts: [] }];
      const later = {
        start_date: truth.periodEnd,
        end_date: truth.periodEnd + 2_592_000,
        discounts: [],
        items,
      };
      attachSchedule(api.world, truth, { phases: [presentPhase(truth), later] });
    }
    await post('sync', {});
  }
  if (beside.lifetime) {
    const session = {
      ...{ id: `cs_${at}`, object: 'checkout.session', mode: 'payment', status: 'complete' },
      ...{ payment_status: 'paid', customer, amount_total: 500, currency: 'eur' },
      line_items: { data: [{ quantity: 1, price: { id: 'price_lifetime' } }] },
    };
    await deliver(app, eventOf('checkout.session.completed', at, session));
  }
  if (beside.granted) await app.server.fastify.saas.users.grant({ id: user.id }, { plan: 'guest' });
  const { body } = await app.request('GET', '/api/billing/holdings', { token });
  return { user, holdings: body.data.holdings as { kind: string; actions: string[] }[] };
}

async function signIn(context: BrowserContext, origin: string, email: string): Promise<Page> {
  const page = await context.newPage();
  await page.goto(`${origin}/account/sign-in`);
  await page.getByLabel('E-mail address').fill(email);
  await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
  await Promise.all([
    page.waitForNavigation(),
    page.getByRole('button', { name: 'Sign in', exact: true }).click(),
  ]);
  return page;
}

await onChromium((browser) => {
  for (const state of Object.keys(STATES))
    t.test(`${state}, with and without an add-on, a purchase and a grant`, async (t) => {
      const place = await seller(t);
      for (const [index, beside] of BESIDE.entries()) {
        const { user, holdings } = await holder(place, state, beside, index + 1);
        const context = await browser.newContext({ bypassCSP: true });
        const page = await signIn(context, place.origin, user.email);
        const response = await page.goto(`${place.origin}/account/billing`);
        const held = Object.entries(beside).flatMap(([name, is]) => (is ? [name] : []));
        await t.test([state, ...held].join(', '), async (t) => {
          t.equal(response?.status(), 200);
          const formsOf = (action: string) => page.locator(`form[action$="/${action}"]`).count();
          const able = (...actions: string[]) =>
            holdings.filter((one) => actions.every((action) => one.actions.includes(action))).length;
          t.equal(await formsOf('cancel'), able('cancel'), 'what can end with its period');
          t.equal(await formsOf('resume'), able('resume'), 'what can be continued');
          t.equal(await formsOf('undo'), able('undo_change'), 'a change that can be undone');
          for (const { kind, actions } of holdings) if (kind !== 'subscription') t.same(actions, []);
          const prices = (action: string) =>
            page
              .locator(`form[action$="/${action}"] [name=price]`)
              .evaluateAll((all) => all.map((one) => (one as unknown as { value: string }).value));
          const changes = await prices('change');
          t.same(changes, able('change') === 0 ? [] : ['price_basic'], 'only plans of the same family');
          const offered = [...changes, ...(await prices('checkout')), ...(await prices('add-on'))];
          t.equal(new Set(offered).size, offered.length, 'each price at most once');
          t.notOk(beside.lifetime && offered.includes('price_lifetime'), 'not what the user has bought');

          await page.evaluate(AXE);
          for (const [width, colorScheme] of [
            [1280, 'light'],
            [320, 'dark'],
          ] as const) {
            await page.setViewportSize({ width, height: 800 });
            await page.emulateMedia({ colorScheme });
            const results: AxeResults = await page.evaluate('axe.run({ resultTypes: ["violations"] })');
            t.same(
              results.violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html}`)),
              [],
              `${width} px, ${colorScheme}`,
            );
            const overflow = 'document.documentElement.scrollWidth - document.documentElement.clientWidth';
            t.equal(await page.evaluate(overflow), 0, `nothing sticks out at ${width} px`);
          }
        });
        if (process.env['SCREENSHOTS'])
          await page.screenshot({
            path: `${process.env['SCREENSHOTS']}/billing-${[state, ...held].join('-')}.png`,
            fullPage: true,
          });
        await context.close();
      }
    });
});

import type { Browser, Page } from 'playwright-core';
import t, { type Test } from 'tap';
import { SECRETS } from '../kit/app.js';
import { onChromium } from '../kit/chromium.js';
import { makeOperator } from '../kit/operator.js';
import { eventOf, subscriber } from '../saas/billing/kit.js';
import { fillSignIn, reachableIdp } from './kit.js';

/**
 * What operators do every day, in a browser and with the number of clicks. Typing and Enter are no clicks. A job that needs more than
 * before has become worse.
 */

/** A person at a page. */
class Operator {
  clicks = 0;
  readonly page: Page;
  constructor(page: Page) {
    this.page = page;
  }

  async #click(role: 'link' | 'button', name: string): Promise<void> {
    this.clicks += 1;
    await this.page.getByRole(role, { name, exact: true }).first().click();
  }
  follow = (name: string): Promise<void> => this.#click('link', name);
  press = (name: string): Promise<void> => this.#click('button', name);
  async openMenu(name: string): Promise<void> {
    this.clicks += 1;
    await this.page.locator('summary', { hasText: name }).first().click();
  }
  async find(text: string): Promise<void> {
    const field = this.page.getByRole('searchbox', { name: 'Search everything' });
    await field.fill(text);
    await field.press('Enter');
  }
  reads = (text: string | RegExp): Promise<void> => this.page.getByText(text).first().waitFor();
  /** Confirms with what the page asks to type. */
  async confirm(button: string): Promise<void> {
    const label = await this.page.locator('label[for="field-confirm"]').innerText();
    await this.page.locator('#field-confirm').fill(label.replace(/^Type | to confirm$/g, ''));
    await this.press(button);
  }
}

/** Runs a job from the start page. */
async function inClicks(
  t: Test,
  operator: Operator,
  start: string,
  clicks: number,
  job: () => Promise<void>,
): Promise<void> {
  await operator.page.goto(start);
  operator.clicks = 0;
  await job();
  t.equal(operator.clicks, clicks);
}

async function pageOf(t: Test, browser: Browser, more: object = {}): Promise<Page> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...more });
  t.teardown(() => context.close());
  return context.newPage();
}

/** A backend with a customer who has paid. */
async function founder(t: Test, browser: Browser) {
  const customer = await subscriber(t, { publicUrl: undefined, limits: false } as object);
  const { app, api, ada, truth, deliver } = customer;
  const { world } = api;
  const charge = { id: world.name('ch'), intent: world.name('pi'), created: world.now };
  const invoice = world.name('in');
  const paid = { invoice, subscription: truth, status: 'paid' as const, amount: 2900, charge, refunded: 0 };
  world.payments.set(invoice, paid);
  const record = {
    object: 'invoice',
    id: invoice,
    customer: ada.customer,
    currency: 'eur',
    amount_paid: 2900,
    status: 'paid',
  };
  await deliver(eventOf('invoice.paid', 60, { ...record, charge: charge.id, payment_intent: charge.intent }));
  const origin = (await app.listen()).replace('127.0.0.1', 'localhost');
  const { adminUsername: username, adminPassword: password } = SECRETS;
  const page = await pageOf(t, browser, { httpCredentials: { username, password } });
  return { ...customer, operator: new Operator(page), start: `${origin}/admin/`, paid };
}

await onChromium((browser) => {
  t.test('a founder answers whether a customer has access, and why: 1 click', async (t) => {
    const { operator, start, ada } = await founder(t, browser);
    await inClicks(t, operator, start, 1, async () => {
      await operator.find(ada.email.slice(0, 6));
      await operator.follow(ada.email);
      await operator.reads(/Has access/);
    });
  });

  t.test('a founder gives the money of a payment back: 4 clicks', async (t) => {
    const { operator, start, ada, paid } = await founder(t, browser);
    await inClicks(t, operator, start, 4, async () => {
      await operator.find(ada.email.slice(0, 6));
      await operator.follow(ada.email);
      await operator.follow('Payments 1');
      await operator.follow('Refund');
      await operator.press('Refund');
      await operator.reads(/^The refund is made/);
    });
    t.equal(paid.refunded, 2900);
  });

  t.test('a founder gives a customer a plan: 3 clicks', async (t) => {
    const { operator, start, ada } = await founder(t, browser);
    await inClicks(t, operator, start, 3, async () => {
      // A whole address leads to the page at once.
      await operator.find(ada.email);
      await operator.openMenu('Billing');
      await operator.follow('Grant a plan');
      await operator.press('Grant plan');
      await operator.reads('The plan was granted.');
    });
  });

  t.test('a founder suspends all accounts that a search finds: 4 clicks', async (t) => {
    const { operator, start, app } = await founder(t, browser);
    for (const name of ['one', 'two', 'three']) await app.signUp({ email: `${name}@spam.example` });
    await inClicks(t, operator, start, 4, async () => {
      await operator.follow('Users');
      await operator.page.getByRole('searchbox', { name: 'Search', exact: true }).fill('spam.example');
      await operator.page.keyboard.press('Enter');
      await operator.openMenu('With all of these');
      await operator.follow('Suspend');
      await operator.confirm('Suspend all');
      await operator.reads('All of them were changed.');
    });
  });

  t.test('the person on duty sees who changed something, and when: 1 click', async (t) => {
    const { operator, start, app, ada } = await founder(t, browser);
    await app.admin('POST', `/admin/api/users/${ada.id}/rename`, { name: 'Ada' });
    await inClicks(t, operator, start, 1, async () => {
      await operator.follow('Audit');
      await operator.reads(SECRETS.adminUsername);
    });
  });

  t.test('an IT operator stops an agent, creates one and invites a person', async (t) => {
    const { idp, origin } = await reachableIdp(t);
    const olga = await makeOperator(t, idp, 'olga@example.test');
    const agent = await idp.mintAgent({ handle: 'scraper@example.test' });
    const operator = new Operator(await pageOf(t, browser));
    const start = `${origin}/admin/`;
    await operator.page.goto(start);
    await fillSignIn(operator.page, olga.handle, olga.password);
    await operator.press('Sign in');
    await inClicks(t, operator, start, 4, async () => {
      await operator.find('scrap');
      await operator.follow(agent.handle);
      await operator.openMenu('More');
      await operator.follow('Stop it');
      await operator.press('Disable');
      await operator.reads('May not sign in');
    });
    await inClicks(t, operator, start, 3, async () => {
      await operator.follow('People and agents');
      await operator.follow('Create an agent');
      await operator.page.getByLabel('User name').fill('reporter@example.test');
      await operator.press('Create the agent');
      await operator.reads(/reporter@example.test/);
    });
    await inClicks(t, operator, start, 3, async () => {
      await operator.follow('Invitations');
      await operator.follow('Invite a person');
      await operator.page.getByLabel('User name').fill('new@example.test');
      await operator.press('Create the invitation');
      await operator.reads(/\/invite|link/i);
    });
  });
});

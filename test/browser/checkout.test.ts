import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { rolldown } from 'rolldown';
import t, { type Test } from 'tap';
import { PASSWORD } from '../kit/app.js';
import { onChromium } from '../kit/chromium.js';
import { serverPort } from '../kit/port.js';
import { startCommand } from '../kit/process.js';
import { temporaryFolder } from '../kit/tmp.js';
import { type Block, blocksOf, ROOT } from '../package/documents/blocks.js';
import { refusalsOf } from './kit.js';

/**
 * A purchase as the documentation describes it: the application and the stand-in for Stripe of docs/saas/billing.md, and the snippets
 * of docs/saas/client.md in a page.
 */

const blocksBelow = (page: string, heading: string): Block[] =>
  blocksOf(page).filter((block) => block.heading === heading);

/** The snippets of "Sell a plan", each behind a button, as one script. */
async function pageWithClient(folder: string): Promise<string> {
  const [setUp] = blocksOf('docs/saas/client.md');
  writeFileSync(join(folder, 'client.ts'), setUp?.text ?? '');
  const sell = blocksBelow('docs/saas/client.md', 'Sell a plan').map(({ text }) => `async () => {${text}}`);
  writeFileSync(
    join(folder, 'page.ts'),
    `import { client } from './client.ts';
     const show = (text: string) => { document.querySelector('output').textContent = text; };
     const [buy, returned, portal] = [${sell}];
     const open = async () => show(String((await client.fetch('/reports')).status));
     const cancel = () => client.billing.cancelSubscription({ when: 'now' }).then(returned);
     for (const [name, act] of Object.entries({ buy, returned, portal, open, cancel })) {
       const button = document.createElement('button');
       button.textContent = name;
       button.onclick = () => act().catch((error) => show(String(error.code ?? error)));
       document.body.append(button);
     }`,
  );
  await using bundle = await rolldown({ input: join(folder, 'page.ts'), platform: 'browser' });
  const { output } = await bundle.generate({ format: 'esm' });
  return `<!doctype html><title>Shop</title><output></output><script type="module">${output[0].code}</script>`;
}

/** The two commands of docs/saas/billing.md, on ports of this test. */
async function startBoth(t: Test, env: Record<string, string> = {}) {
  const cwd = temporaryFolder(t);
  mkdirSync(join(cwd, 'node_modules'));
  symlinkSync(ROOT, join(cwd, 'node_modules/saas-backend'));
  symlinkSync(join(ROOT, 'node_modules/fastify'), join(cwd, 'node_modules/fastify'));
  const [app] = blocksBelow('docs/saas/billing.md', 'Without an account of Stripe');
  writeFileSync(join(cwd, 'page.html'), await pageWithClient(cwd));
  writeFileSync(
    join(cwd, 'app.mjs'),
    `import { readFileSync } from 'node:fs';\n${app?.text}`.replace(
      'const port =',
      `const page = readFileSync('page.html');
       fastify.get('/shop', (_, reply) => reply.type('text/html').send(page));
       const port =`,
    ),
  );
  const port = String(await serverPort());
  const origin = `http://localhost:${port}`;
  const [provider = '', start = ''] = blocksBelow('docs/saas/billing.md', 'Without an account of Stripe')
    .filter(({ runBy }) => runBy)
    .map(({ text }) => text.trim());
  const run = (command: string, env: Record<string, string>) =>
    startCommand(t, 'sh', {
      ...{ cwd, env },
      args: ['-c', command.replace(/\bnode (?=\S*\.mjs)/, `exec ${process.execPath} `)],
    });
  const payments = run(provider, { APP: origin, PORT: '0' });
  const address = await payments.url();
  const server = run(start.replace('http://127.0.0.1:4242', address), { PORT: port, ...env });
  await server.printed(/^http:.*\/account$/);
  return { origin, payments, address, server };
}

/** Signs up on the pages of the account. */
async function signUp(page: Page, origin: string, email: string): Promise<void> {
  await page.goto(`${origin}/account/sign-up`);
  await page.getByLabel('E-mail address').fill(email);
  await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
  await page.getByLabel('Confirm password').fill(PASSWORD);
  await page.getByRole('button', { name: 'Create account' }).click();
  await page.waitForURL(`${origin}/account`);
}

const newPage = async (t: Test, browser: Browser) => {
  const context = await browser.newContext();
  t.teardown(() => context.close());
  return { page: await context.newPage(), refusals: refusalsOf(context) };
};

await onChromium((browser) => {
  t.test('a user buys a plan with the client, uses a paid route, and cancels', async (t) => {
    const { origin, payments, address, server } = await startBoth(t, {
      BILLING_RETURN_URL_RELATIVE: '/shop',
    });
    const { page } = await newPage(t, browser);
    const press = (name: string) => page.getByRole('button', { name, exact: true }).click();
    const shows = (text: string) => page.locator('output', { hasText: text }).waitFor();
    await signUp(page, origin, 'ada@example.test');
    await page.goto(`${origin}/shop`);
    await press('open');
    await shows('403');

    await press('buy');
    await page.waitForURL(`${address}/pay/*`);
    await press('Back');
    await page.waitForURL(`${origin}/shop?checkout=cancelled`);
    await press('buy');
    await press('Pay');
    await page.waitForURL(`${origin}/shop?checkout=success&session_id=cs_*`);
    for (const type of ['customer.subscription.created', 'invoice.paid', 'checkout.session.completed'])
      await payments.printed(new RegExp(`^${type} 200$`));
    await press('open');
    await shows('200');
    await press('returned');
    await shows('You have pro.');
    await press('buy');
    await shows('ALREADY_SUBSCRIBED');

    await press('portal');
    await press('Cancel subscription');
    await press('Return');
    await page.waitForURL(`${origin}/shop`);
    await payments.printed(/^customer\.subscription\.updated 200$/);
    await press('open');
    await shows('200');
    await press('cancel');
    await shows('You have no plan.');
    await press('open');
    await shows('403');
    t.equal(await payments.terminate(), 0);
    t.equal(await server.terminate(), 0);
  });

  t.test('a user buys and cancels a plan on the account pages', async (t) => {
    const { origin, payments } = await startBoth(t);
    const { page, refusals } = await newPage(t, browser);
    const press = (name: string) => page.getByRole('button', { name }).click();
    await signUp(page, origin, 'grace@example.test');
    await page.goto(`${origin}/account/billing`);
    await press('Choose: Professional');
    await press('Pay');
    await page.getByText('Renews on').waitFor();
    await press('Payment method and billing address');
    await press('Cancel subscription');
    await press('Return');
    await page.waitForURL(`${origin}/account/billing`);
    await page.getByText('Ends on').waitFor();
    await press('Keep the plan');
    await page.getByText('The plan continues').waitFor();
    await payments.printed(/^customer\.subscription\.updated 200$/);
    t.same(refusals, []);
  });
});

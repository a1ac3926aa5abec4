import { mkdirSync } from 'node:fs';
import type { BrowserContext, Page } from 'playwright-core';
import t from 'tap';
import { basic } from '../kit/app.js';
import { onChromium } from '../kit/chromium.js';
import { fillSignIn } from './kit.js';
import { sampleProvider, sampleShop } from './samples.js';

/** `npm run screenshots`: takes the pictures of README and docs, of both products with sample data. */

const FOLDER = 'docs/images';

async function shoot(page: Page, name: string, height = 860): Promise<void> {
  await page.setViewportSize({ width: 1280, height });
  await page.screenshot({ path: `${FOLDER}/${name}.png` });
}

const look = (context: BrowserContext, colorScheme: 'light' | 'dark') =>
  Promise.all(context.pages().map((page) => page.emulateMedia({ colorScheme })));

await onChromium((browser) => {
  mkdirSync(FOLDER, { recursive: true });

  t.test('the admin area', async (t) => {
    const { app, userId } = await sampleShop(t);
    const origin = await app.listen();
    const context = await browser.newContext({ extraHTTPHeaders: { authorization: basic() } });
    t.teardown(() => context.close());
    const page = await context.newPage();
    t.equal((await page.goto(`${origin}/admin`))?.status(), 200);
    await shoot(page, 'admin-overview');
    await look(context, 'dark');
    await shoot(page, 'admin-overview-dark');
    await look(context, 'light');
    t.equal((await page.goto(`${origin}/admin/users/${userId}`))?.status(), 200);
    await shoot(page, 'admin-user');
  });

  t.test('the console of the provider', async (t) => {
    const { origin, operator } = await sampleProvider(t);
    const context = await browser.newContext();
    t.teardown(() => context.close());
    const page = await context.newPage();
    await page.goto(`${origin}/admin/`);
    await fillSignIn(page, operator.handle, operator.password);
    await Promise.all([page.waitForNavigation(), page.locator('button').first().click()]);
    t.match(await page.title(), 'Overview');
    await shoot(page, 'console-overview');
    t.equal((await page.goto(`${origin}/admin/principals`))?.status(), 200);
    await shoot(page, 'console-principals');
  });
});

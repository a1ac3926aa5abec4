import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import type { AxeResults } from 'axe-core';
import type { Page } from 'playwright-core';
import t, { type Test } from 'tap';
import { onChromium } from '../kit/chromium.js';
import { temporaryFolder } from '../kit/tmp.js';
import { mailedApp } from '../saas/auth/kit.js';
import { authorizeUrl, reachableIdp, refusalsOf, serveElsewhere } from './kit.js';
import { planTour } from './tour.js';
import { openUserPages } from './user-tour.js';

/** Every page as people use it: small and large, light and dark, by keyboard and with a screen reader. */

/** A folder for screenshots of each page in each look, for manual review. */
const { SCREENSHOTS } = process.env;

/** Half as long as `axe.source`; each page compiles it. */
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

const VISIBLE = { runOnly: ['color-contrast', 'link-in-text-block', 'scrollable-region-focusable'] };

/** All rules once; then, at the other width and in the other scheme, the rules that depend on them. */
const LOOKS = [
  { width: 1280, colorScheme: 'light', rules: {} },
  { width: 320, colorScheme: 'dark', rules: VISIBLE },
  { width: 320, colorScheme: 'light', rules: null },
  { width: 1280, colorScheme: 'dark', rules: null },
] as const;

/** The autocomplete attributes of the fields, for password managers. */
const AUTOCOMPLETE: Record<string, string> = {
  current: 'current-password',
  confirm: 'new-password',
  password: 'current-password new-password',
};

await onChromium((browser) => {
  t.test('every page is accessible at every width and colour scheme', async (t) => {
    // The content security policy is not under test here, and axe must run.
    const context = await browser.newContext({ bypassCSP: true, reducedMotion: 'reduce' });
    t.teardown(() => context.close());
    const page = await context.newPage();
    const devtools = await context.newCDPSession(page);
    const disableScripts = (value: boolean) =>
      devtools.send('Emulation.setScriptExecutionDisabled', { value });
    for (const { name, status, go } of await planTour(t)) {
      await t.test(name, async (t) => {
        await page.setViewportSize({ width: 1280, height: 800 });
        await disableScripts(true);
        const response = await go(page);
        await disableScripts(false);
        t.equal(response?.status(), status);
        t.equal(await page.locator('html').getAttribute('lang'), 'en');
        await checkFields(t, page, { isBlameless: BLAMELESS.includes(name) });
        await checkKeyboard(t, page);
        await page.evaluate(AXE);
        for (const { width, colorScheme, rules } of LOOKS) {
          await page.setViewportSize({ width, height: 800 });
          await page.emulateMedia({ colorScheme });
          const look = `${width} px, ${colorScheme}`;
          if (rules) t.same(await violations(page, rules), [], look);
          const overflow = 'document.documentElement.scrollWidth - document.documentElement.clientWidth';
          t.equal(await page.evaluate(overflow), 0, `nothing sticks out at ${look}`);
          if (SCREENSHOTS) await picture(page, SCREENSHOTS, `${name}-${width}-${colorScheme}`);
        }
        t.same(await page.evaluate(MOVING), [], 'nothing moves for those who do not want it');
      });
    }
  });
});

async function violations(page: Page, rules: object): Promise<string[]> {
  const results: AxeResults = await page.evaluate(
    `axe.run(${JSON.stringify({ resultTypes: ['violations'], ...rules })})`,
  );
  return results.violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html}`));
}

/** Pages whose error is not about a field. */
const BLAMELESS = ['passkeys-sign-in-wrong', 'user-agents-taken', 'user-invitation-invalid'];

async function checkFields(t: Test, page: Page, { isBlameless = false } = {}): Promise<void> {
  for (const field of await page.locator('input[type=password]').all()) {
    const [id, autocomplete] = [await field.getAttribute('id'), await field.getAttribute('autocomplete')];
    t.ok(autocomplete && AUTOCOMPLETE[id ?? '']?.split(' ').includes(autocomplete), `${id}: ${autocomplete}`);
  }
  const alert = page.getByRole('alert');
  if ((await alert.count()) === 0) return;
  const id = await alert.getAttribute('id');
  const field = page.locator(':focus');
  const invalid = isBlameless ? null : 'true';
  t.equal(await field.getAttribute('aria-invalid'), invalid, 'who has made a mistake is where it was made');
  t.ok(
    (await field.getAttribute('aria-describedby'))?.split(' ').includes(id ?? ''),
    'and the error is announced',
  );
  t.match(await page.title(), /^Error: /);
}

const REACHABLE =
  'a[href], button, summary, input:not([type=hidden], [hidden]), select, textarea, [tabindex="0"]';
/** What the frame of a preview has for the Tab key. */
const MAX_IN_FRAME = 10;
/** A date has fields for the day, the month and the year, and a button. */
const MAX_IN_DATE = 4;
const MOVING = `[...document.querySelectorAll('*')].filter((element) => {
  const { transitionDuration, animationName } = getComputedStyle(element);
  return transitionDuration !== '0s' || animationName !== 'none';
}).map(({ tagName }) => tagName)`;

/** The Tab key reaches all interactive elements, and the focus is visible. */
async function checkKeyboard(t: Test, page: Page): Promise<void> {
  // The content of closed details is not visible.
  const reachable = await page.locator(REACHABLE).filter({ visible: true }).count();
  const inFrames = MAX_IN_FRAME * (await page.locator('iframe').count());
  const inDates = MAX_IN_DATE * (await page.locator('input[type=date]').filter({ visible: true }).count());
  const reached = new Set<number>();
  for (let count = 0; count <= reachable + inFrames + inDates + 1; count++) {
    const { index, outline } = await page.evaluate<{ index: number; outline: string }>(`({
      index: [...document.querySelectorAll('${REACHABLE}')].indexOf(document.activeElement),
      outline: getComputedStyle(document.activeElement).outlineStyle,
    })`);
    if (index >= 0) {
      reached.add(index);
      t.equal(outline, 'solid', 'the focus is seen');
    }
    await page.keyboard.press('Tab');
  }
  t.equal(reached.size, reachable, 'the tabulator reaches everything');
}

async function picture(page: Page, folder: string, name: string): Promise<void> {
  mkdirSync(folder, { recursive: true });
  await page.screenshot({ path: join(folder, `${name}.png`), fullPage: true });
}

/** The pages in other languages, of which one is written from right to left. */

await onChromium((browser) => {
  t.test('pages in other languages are accessible and mirrored where the script requires it', async (t) => {
    const [{ idp, origin }, saas, { account, user, subscribe, organize }] = await Promise.all([
      reachableIdp(t),
      mailedApp(t),
      openUserPages(t, 'ada@example.test', 'Ada'),
    ]);
    await subscribe();
    const organized = await organize();
    const client = await idp.createClient({ redirect_uris: `${origin}/health` });
    const { body } = await idp.admin('POST', '/v1/invites', { handle: 'new@example.test' });
    const linked = `${await saas.listen()}/api/auth`;
    const urls = {
      'sign-in': authorizeUrl(origin, client, { scope: 'openid profile email offline_access' }),
      'sign-up': authorizeUrl(origin, client, { prompt: 'create' }),
      invite: body.invite_url,
      error: `${origin}/nothing`,
      'logout-done': `${origin}/logout`,
      'reset-password': `${linked}/reset-password?token=x`,
      'verify-email': `${linked}/verify-email?token=x`,
      unlock: `${linked}/unlock?token=x`,
      'user-sign-in': `${account}/sign-in`,
      'user-sign-up': `${account}/sign-up`,
      'user-forgot-password': `${account}/forgot-password`,
      'user-code-request': `${account}/sign-in/code`,
    };
    const signedIn = [
      '',
      '/password',
      '/address',
      '/second-factor',
      '/passkeys',
      '/providers',
      '/agents',
      '/billing',
      '/organization',
    ];
    const own = [...signedIn, '/billing/change?price=price_basic', '/delete', '/sign-out'].map((path) => [
      `user-account${path.replace(/\?.*/, '').replaceAll('/', '-')}`,
      account + path,
    ]);
    own.push(
      ['user-organization', organized.page],
      ['user-organization-ownership', `${organized.page}/ownership`],
      ['user-invitation', organized.link],
    );
    const session = { name: 'saas-session', value: user.refreshToken, url: account };
    for (const [locale, direction] of Object.entries({ de: 'ltr', ar: 'rtl' })) {
      const context = await browser.newContext({
        locale,
        bypassCSP: true,
        viewport: { width: 390, height: 800 },
      });
      t.teardown(() => context.close());
      const page = await context.newPage();
      for (const [name = '', url = ''] of [...Object.entries(urls), ...own]) {
        // A user who is signed in does not see the pages before sign-in.
        if (url === account) await context.addCookies([session]);
        const response = await page.goto(url);
        if (url.startsWith(account)) t.equal(response?.status(), 200, name);
        t.equal(await page.locator('html').getAttribute('lang'), locale, name);
        t.equal(await page.locator('html').getAttribute('dir'), direction, name);
        const overflow = 'document.documentElement.scrollWidth - document.documentElement.clientWidth';
        t.equal(await page.evaluate(overflow), 0, `nothing sticks out of ${name}`);
        await page.evaluate(AXE);
        t.same(await violations(page, {}), [], `${name}, ${locale}`);
        if (SCREENSHOTS) await picture(page, SCREENSHOTS, `${name}-390-${locale}`);
      }
    }
  });
});

/** Branding configured by the operator does not break the pages. */

await onChromium((browser) => {
  t.test('a logo from another origin is displayed as an image and cannot run scripts', async (t) => {
    const requests: string[] = [];
    const stranger = await serveElsewhere(t, (request, response) => {
      requests.push(request.url ?? '');
      response.end();
    });
    const file = join(temporaryFolder(t), 'logo.svg');
    writeFileSync(
      file,
      `<svg xmlns="http://www.w3.org/2000/svg" width="120" height="40" onload="parent.document.title='taken'; fetch('${stranger.url}/onload')">
        <script>parent.document.title = 'taken'; fetch('${stranger.url}/script')</script>
        <style>@import url(${stranger.url}/style);</style>
        <image href="${stranger.url}/image" width="9" height="9"/>
        <foreignObject><iframe xmlns="http://www.w3.org/1999/xhtml" src="${stranger.url}/frame"/></foreignObject>
        <rect width="120" height="40" fill="#c30"/>
      </svg>`,
    );
    const { idp, origin } = await reachableIdp(t, { brandLogo: file, brandName: 'Ada’s' });
    const client = await idp.createClient();
    const context = await browser.newContext();
    t.teardown(() => context.close());
    const refusals = refusalsOf(context);
    const page = await context.newPage();
    await page.goto(authorizeUrl(origin, client));
    const logo = page.getByRole('img', { name: 'Ada’s' });
    t.equal(await page.evaluate("document.querySelector('.brand img').naturalWidth"), 120, 'it is shown');
    t.equal((await logo.boundingBox())?.height, 40);
    t.equal(await page.title(), 'Sign in – Ada’s');
    t.same(requests, []);
    t.same(refusals, [], 'and needs nothing that the policy does not allow');
  });
});

import type { ServerResponse } from 'node:http';
import type { Browser, Page } from 'playwright-core';
import t, { type Test } from 'tap';
import { basic } from '../kit/app.js';
import { onChromium } from '../kit/chromium.js';
import { claimsOf, codeIn, type IdpApp, idpApp } from '../kit/idp.js';
import {
  authorizeUrl,
  fillSignIn,
  type Listening,
  reachableIdp,
  refusalsOf,
  selfSigned,
  serveElsewhere,
} from './kit.js';

/** What people do in a real browser that enforces our content security policy, from the application and back. */

const STATE = 'a&b c';

await onChromium((browser) => {
  const tls = selfSigned();

  t.test('the sign-in form redirects to every kind of application, with and without scripts', async (t) => {
    const other = await serveElsewhere(t, (_request, response) => response.end('elsewhere'), { tls });
    const web = await serveElsewhere(t, (_request, response) => goOn(response, `${other.url}/home`), { tls });
    const pages = await serveElsewhere(t, (_request, response) => response.end('at another port'));
    const [loopback, loopback6, desktop] = await Promise.all([
      serveElsewhere(t, (_request, response) => goOn(response, `${pages.url}/home`)),
      serveElsewhere(t, (_request, response) => response.end('a program of this machine'), { host: '::1' }),
      serveElsewhere(t, (_request, response) => goOn(response, 'com.example.desktop:/done')),
    ]);
    const targets: Record<string, [base: string, end: string]> = {
      'https, which goes on to another origin': [web.url, `${other.url}/home`],
      'http on this machine, which goes on to another port': [loopback.url, `${pages.url}/home`],
      'http on this machine by IPv6': [loopback6.url, `${loopback6.url}/cb`],
      'a scheme of its own': ['com.example.app:', 'com.example.app:/cb'],
      'http on this machine, which goes on to a scheme': [desktop.url, 'com.example.desktop:/done'],
    };
    for (const [js, provider] of [
      [false, await secureIdp(t, tls)],
      [true, await reachableIdp(t)],
    ] as const) {
      const { idp, origin } = provider;
      // The policy is the same with scripts, so every third kind suffices.
      const kinds = Object.entries(targets).filter((_, index) => !js || index % 3 === 0);
      for (const [kind, [base, end]] of kinds) {
        await t.test(`${kind}, ${js ? 'with' : 'without'} scripts`, async (t) => {
          const { page, refusals } = await open(t, browser, js);
          const client = await idp.createClient({ redirect_uris: `${base}/cb`, name: kind });
          const human = await idp.makeHuman();
          const url = authorizeUrl(origin, client, { scope: 'openid email' });

          await page.goto(url);
          await fillSignIn(page, human.handle);
          await expectAnswer(t, idp, client, await arrival(page, `${base}/cb`, end, submit));

          t.same(refusals, []);
          // Chromium does not reliably open an external program a second time.
          if (!end.startsWith('http')) return;
          await page.goto(`${url}&prompt=consent`);
          t.match(await page.locator('main').innerText(), /your e-mail address/);
          const allow = () => page.getByRole('button', { name: 'Allow', exact: true }).click();
          await expectAnswer(t, idp, client, await arrival(page, `${base}/cb`, end, allow));
          t.same(refusals, []);
        });
      }
    }
  });

  t.test('an application receives the answer as a form, with and without scripts', async (t) => {
    const posts: { type: string | undefined; form: URLSearchParams }[] = [];
    const app = await serveElsewhere(t, async (request, response) => {
      const body = Buffer.concat(await request.toArray()).toString();
      if (request.method === 'POST')
        posts.push({ type: request.headers['content-type'], form: new URLSearchParams(body) });
      response.end('arrived');
    });
    const { idp, origin } = await reachableIdp(t);
    const cb = `${app.url}/cb`;
    const client = await idp.createClient({ redirect_uris: cb });
    const human = await idp.makeHuman();
    for (const js of [true, false]) {
      const { page, refusals } = await open(t, browser, js);
      await page.goto(authorizeUrl(origin, client, { response_mode: 'form_post' }));
      await fillSignIn(page, human.handle);
      await submit(page);
      if (!js) {
        t.match(await page.locator('main').innerText(), /returned to/);
        await page.getByRole('button', { name: 'Continue' }).click();
      }
      await page.waitForURL(cb);
      t.same(refusals, []);
      const { type, form } = posts.pop() ?? {};
      t.equal(type, 'application/x-www-form-urlencoded');
      t.equal(form?.get('state'), STATE);
      t.equal(form?.get('iss'), origin);
      t.equal((await idp.redeem(client, form?.get('code') ?? '')).status, 200);
    }
    t.same(posts, []);
  });

  t.test('an application that signs in by a pop-up window receives the answer', async (t) => {
    const { idp, origin } = await reachableIdp(t);
    const app = await serveElsewhere(t, (_request, response) =>
      response.setHeader('content-type', 'text/html').end('<title>app</title><button>Sign in</button>'),
    );
    const client = await idp.createClient({ redirect_uris: `${app.url}/cb` });
    const human = await idp.makeHuman();
    const { page } = await open(t, browser, true);
    await page.goto(app.url);
    const url = authorizeUrl(origin, client);
    const [popup] = await Promise.all([page.waitForEvent('popup'), page.evaluate(`window.open('${url}')`)]);
    await fillSignIn(popup, human.handle, 'not the password');
    await submit(popup);
    await fillSignIn(popup, human.handle);
    await arrival(popup, `${app.url}/cb`, `${app.url}/cb`, submit);
    t.equal(await popup.evaluate('window.opener?.document.title'), 'app');
  });

  t.test('Basic credentials sent by a browser are refused, and browsers are never challenged', async (t) => {
    const { idp, origin } = await reachableIdp(t);
    const client = await idp.createClient();
    const { handle, password } = await idp.mintAgent();
    const url = authorizeUrl(origin, client);
    const header = await browser.newContext({ extraHTTPHeaders: { authorization: basic(handle, password) } });
    t.teardown(() => header.close());
    const refused = await header.newPage();
    const response = await refused.goto(url);
    t.equal(response?.status(), 400);
    t.equal(response?.headers()['www-authenticate'], undefined);
    t.match(await refused.locator('main').innerText(), 'Use the sign-in form in a browser');

    const { page } = await open(t, browser, true);
    const inUrl = url.replace('//', `//${encodeURIComponent(handle)}:${encodeURIComponent(password)}@`);
    t.equal((await page.goto(inUrl))?.status(), 200);
    t.ok(await page.getByLabel('Password').isVisible(), 'the form, and no code');
  });
});

type Client = Awaited<ReturnType<IdpApp['createClient']>>;

const submit = (page: Page) => page.locator('button').first().click();

function goOn(response: ServerResponse, location: string): void {
  response.writeHead(302, { location }).end();
}

/** A new browser context. */
async function open(t: Test, browser: Browser, javaScriptEnabled: boolean) {
  const context = await browser.newContext({ javaScriptEnabled, ignoreHTTPSErrors: true });
  t.teardown(() => context.close());
  const refusals = refusalsOf(context);
  return { page: await context.newPage(), refusals };
}

/** A provider behind TLS, as in production: its cookies are bound to its host. */
async function secureIdp(t: Test, tls: Listening['tls']): Promise<{ idp: IdpApp; origin: string }> {
  let idp: IdpApp | undefined;
  const { url } = await serveElsewhere(
    t,
    (request, response) => idp?.server.fastify.routing(request, response),
    {
      tls,
    },
  );
  idp = await idpApp(t, { publicUrl: url });
  return { idp, origin: url };
}

/** The address under `callback` to which the browser was redirected, once it reaches `end`, if that can be opened. */
async function arrival(
  page: Page,
  callback: string,
  end: string,
  act: (page: Page) => Promise<unknown>,
): Promise<string> {
  const request = page.waitForRequest((sent) => sent.url().startsWith(`${callback}?`));
  const isPage = end.startsWith('http');
  const landing = isPage
    ? page.waitForURL((url) => url.href.startsWith(end))
    : page.waitForRequest((sent) => sent.url().startsWith(end));
  const [sent] = await Promise.all([request, landing, act(page)]);
  return sent.url();
}

async function expectAnswer(t: Test, idp: IdpApp, client: Client, url: string): Promise<void> {
  const answer = new URL(url).searchParams;
  t.match(answer.get('code'), /^ac_[\w-]{75}$/);
  t.equal(answer.get('state'), STATE);
  const { status, body } = await idp.redeem(client, codeIn(url));
  t.equal(status, 200);
  t.equal(answer.get('iss'), claimsOf(body.id_token).iss);
}

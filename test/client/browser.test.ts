import { createContext, runInContext } from 'node:vm';
import type { Browser, Page } from 'playwright-core';
import t, { type Test } from 'tap';
import type { SaasClient, SessionEnd } from '../../src/client/index.js';
import { onChromium } from '../kit/chromium.js';
import { waitUntil } from '../kit/wait.js';
import {
  type Backend,
  type ClientModule,
  CREDENTIALS,
  clientScript,
  EXPIRY_MS,
  startBackend,
} from './kit.js';

/** The client where there is no Node.js: in tabs of a browser, and in a runtime with web APIs only. */

const REFRESH = 'POST /api/auth/refresh';
const REQUESTS = 34;

/** The globals of a page. */
interface PageGlobals {
  SaasClient: ClientModule;
  client: SaasClient;
  ends: SessionEnd[];
  localStorage: object;
}

type Storage = 'memory' | 'cookie' | 'localStorage';

/** Three tabs of one browser, each with a client. */
async function openTabs(
  t: Test,
  browser: Browser,
  { origin }: Backend,
  { storage, hasLocks = true }: { storage: Storage; hasLocks?: boolean },
): Promise<[Page, Page, Page]> {
  const context = await browser.newContext();
  t.teardown(() => context.close());
  if (!hasLocks)
    await context.addInitScript('Object.defineProperty(navigator, "locks", { value: undefined })');
  await context.addInitScript(`
    ${await clientScript()};
    globalThis.ends = [];
    globalThis.client = SaasClient.createClient({
      baseUrl: '/api',
      storage: ${storage === 'localStorage' ? storage : `'${storage}'`},
      onSessionEnd: (end) => ends.push(end),
    });`);
  const tab = async () => {
    const page = await context.newPage();
    await page.goto(origin);
    return page;
  };
  return [await tab(), await tab(), await tab()];
}

const register = (page: Page, email = CREDENTIALS.email): Promise<unknown> =>
  page.evaluate(
    (body) =>
      (globalThis as unknown as PageGlobals).client.auth.register(body).then(({ user }) => user?.email),
    { ...CREDENTIALS, email },
  );

/** What as many parallel requests return, each value once. */
const profiles = (page: Page, count = REQUESTS): Promise<string[]> =>
  page.evaluate(async (count) => {
    const { client } = globalThis as unknown as PageGlobals;
    const calls = Array.from({ length: count }, () =>
      client.user.getProfile().then(
        ({ email }) => email,
        ({ code }) => code as string,
      ),
    );
    return [...new Set(await Promise.all(calls))];
  }, count);

const logout = (page: Page): Promise<void> =>
  page.evaluate(() => (globalThis as unknown as PageGlobals).client.auth.logout());

const endsOf = (page: Page): Promise<SessionEnd[]> =>
  page.evaluate(() => (globalThis as unknown as PageGlobals).ends);

const endsWith = (page: Page, count: number, reason: string): Promise<void> =>
  waitUntil(`${reason} in each tab`, async () => {
    const ends = await endsOf(page);
    return ends.length === count && ends.at(-1)?.reason === reason;
  });

/** Until the requests of all tabs are refused: each of them needs a refresh then. */
const allRefused = (backend: Backend, rounds: number) => () =>
  waitUntil(
    'all requests are refused',
    () => backend.count('GET /api/user/profile 401') >= rounds * 3 * REQUESTS,
  );

const inEach = <T>(pages: Page[], act: (page: Page) => Promise<T>): Promise<T[]> =>
  Promise.all(pages.map(act));

await onChromium((browser) => {
  t.test('the page of the OpenAPI document works under its content security policy', async (t) => {
    const { origin } = await startBackend(t);
    const page = await browser.newPage();
    t.teardown(() => page.close());
    const messages: string[] = [];
    page.on('console', (message) => messages.push(message.text()));
    await page.goto(`${origin}/api/docs`);
    await page.getByText('/api/auth/register').click();
    await page.getByText('Try it out').click();
    await page.getByRole('button', { name: 'Execute' }).click();
    await page.getByText('Server response').waitFor();
    t.same(
      messages.filter((text) => /policy|refused/i.test(text)),
      [],
    );
  });

  for (const storage of ['localStorage', 'cookie'] as const) {
    t.test(
      `a hundred requests of three tabs need one refresh, and no session is lost, ${storage}`,
      async (t) => {
        const backend = await startBackend(t);
        const pages = await openTabs(t, browser, backend, { storage });
        t.equal(await register(pages[0]), CREDENTIALS.email);
        t.strictSame(
          (await inEach(pages, (page) => profiles(page, 1))).flat(),
          Array(3).fill(CREDENTIALS.email),
        );
        t.equal(backend.count(REFRESH), 0, 'the tabs share the session');
        for (const round of [1, 2, 3]) {
          backend.clock.advance(EXPIRY_MS);
          backend.beforeRefresh = allRefused(backend, round);
          const answers = await inEach(pages, (page) => profiles(page));
          t.strictSame(answers.flat(), Array(3).fill(CREDENTIALS.email));
          t.equal(backend.count(REFRESH), round);
        }
        t.strictSame((await inEach(pages, endsOf)).flat(), []);

        await pages[2].reload();
        t.strictSame(await profiles(pages[2]), [CREDENTIALS.email], 'a reload keeps the session');
        const stored = await pages[0].evaluate(() =>
          JSON.stringify((globalThis as unknown as PageGlobals).localStorage),
        );
        t.equal(stored.includes('refreshToken'), storage === 'localStorage');
      },
    );

    t.test(`tabs learn that another one has logged out or signed in, ${storage}`, async (t) => {
      const backend = await startBackend(t);
      const pages = await openTabs(t, browser, backend, { storage });
      await register(pages[0]);
      await inEach(pages, (page) => profiles(page, 1));
      await logout(pages[1]);
      await inEach(pages, (page) => endsWith(page, 1, 'logout'));
      t.strictSame(
        (await inEach(pages, (page) => profiles(page, 2))).flat(),
        Array(3).fill('UNAUTHENTICATED'),
      );

      await register(pages[1], 'eve@example.test');
      await inEach(pages, (page) => profiles(page, 1));
      await register(pages[2], 'mallory@example.test');
      await endsWith(pages[0], 2, 'replaced');
      await endsWith(pages[1], 2, 'replaced');
      t.equal((await endsOf(pages[2])).length, 1, 'not where it was done');
      t.strictSame(
        (await inEach(pages, (page) => profiles(page, 2))).flat(),
        Array(3).fill('mallory@example.test'),
      );
    });
  }

  t.test('in memory, each tab has its session', async (t) => {
    const backend = await startBackend(t);
    const pages = await openTabs(t, browser, backend, { storage: 'memory' });
    const emails = ['ada@example.test', 'bob@example.test', 'eve@example.test'];
    for (const [index, page] of pages.entries()) await register(page, emails[index]);
    backend.clock.advance(EXPIRY_MS);
    t.strictSame((await inEach(pages, (page) => profiles(page))).flat(), emails);
    t.equal(backend.count(REFRESH), 3);
    await logout(pages[0]);
    t.strictSame((await inEach(pages, (page) => profiles(page, 2))).flat(), [
      'UNAUTHENTICATED',
      ...emails.slice(1),
    ]);
    t.strictSame(await inEach(pages, endsOf), [[{ reason: 'logout' }], [], []]);
  });

  t.test('no session is lost without Web Locks', async (t) => {
    const backend = await startBackend(t);
    const pages = await openTabs(t, browser, backend, { storage: 'localStorage', hasLocks: false });
    await register(pages[0]);
    for (const round of [1, 2, 3]) {
      backend.clock.advance(EXPIRY_MS);
      backend.beforeRefresh = allRefused(backend, round);
      const answers = await inEach(pages, (page) => profiles(page));
      t.strictSame(answers.flat(), Array(3).fill(CREDENTIALS.email));
    }
    t.strictSame((await inEach(pages, endsOf)).flat(), []);
  });
});

t.test('the client needs only web APIs', async (t) => {
  const backend = await startBackend(t);
  const WEB = {
    fetch,
    Headers,
    Response,
    URL,
    AbortController,
    setTimeout,
    clearTimeout,
    atob,
    queueMicrotask,
  };
  const context = createContext({ ...WEB, options: { baseUrl: backend.baseUrl }, CREDENTIALS });
  t.equal(runInContext('typeof process + typeof Buffer + typeof require', context), 'undefined'.repeat(3));
  runInContext(await clientScript(), context);
  runInContext('globalThis.client = SaasClient.createClient(options)', context);
  const run = (code: string): Promise<unknown> => runInContext(`(async () => ${code})()`, context);
  t.match(await run('client.auth.register(CREDENTIALS)'), { user: { email: CREDENTIALS.email } });
  backend.clock.advance(EXPIRY_MS);
  t.match(await run('(await client.fetch("/notes")).json()'), { owner: CREDENTIALS.email });
  t.equal(backend.count(REFRESH), 1);
  t.equal(
    await run('client.auth.login({ ...CREDENTIALS, password: "x" }).catch(({ code }) => code)'),
    'INVALID_CREDENTIALS',
  );
  await run('client.auth.logout()');
});

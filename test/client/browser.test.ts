import { createContext, runInContext } from 'node:vm';
import type { Browser, Page } from 'playwright-core';
import t, { type Test } from 'tap';
import type { SaasClient, SessionChange, SessionEnd } from '../../src/client/index.js';
import { PASSWORD } from '../kit/app.js';
import { onChromium } from '../kit/chromium.js';
import { waitUntil } from '../kit/wait.js';
import { CLIENT, fakeProvider } from '../saas/login-providers/kit.js';
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
  changes: SessionChange['reason'][];
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
    });
    globalThis.changes = [];
    client.onChange(({ reason }) => changes.push(reason));`);
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

/** Who is signed in, by the client. */
const whoIn = (page: Page): Promise<string | null> =>
  page.evaluate(() =>
    (globalThis as unknown as PageGlobals).client.getSession().then((found) => found?.user.email ?? null),
  );

const changesOf = (page: Page): Promise<string[]> =>
  page.evaluate(() => (globalThis as unknown as PageGlobals).changes);

const changesAre = (page: Page, ...expected: string[]): Promise<void> =>
  waitUntil(`${expected} in the tab`, async () => `${await changesOf(page)}` === `${expected}`);

/** What the console of a tab shows in red. */
function redLinesOf(page: Page): string[] {
  const lines: string[] = [];
  page.on('console', (message) => message.type() === 'error' && lines.push(message.text()));
  return lines;
}

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

  t.test(
    'each tab learns of a sign-in in another one, and a page knows at once that nobody is',
    async (t) => {
      for (const storage of ['cookie', 'localStorage'] as const) {
        const backend = await startBackend(t);
        const pages = await openTabs(t, browser, backend, { storage });
        const red = pages.map(redLinesOf);
        const before = backend.requests.length;
        t.strictSame(await inEach(pages, whoIn), [null, null, null]);
        t.equal(backend.requests.length, before, 'no request');
        await register(pages[0]);
        await inEach(pages, (page) => changesAre(page, 'login'));
        t.strictSame(await inEach(pages, whoIn), Array(3).fill(CREDENTIALS.email));
        await pages[2].reload();
        t.equal(await whoIn(pages[2]), CREDENTIALS.email);
        t.equal(backend.count(REFRESH), 0, 'to know it, no token is exchanged');
        await register(pages[1], 'eve@example.test');
        await changesAre(pages[0], 'login', 'replaced');
        await changesAre(pages[1], 'login', 'login');
        await logout(pages[1]);
        await changesAre(pages[0], 'login', 'replaced', 'logout');
        await pages[0].reload();
        t.strictSame(await inEach(pages, whoIn), [null, null, null]);
        t.strictSame(red.flat(), []);
      }
    },
  );

  t.test('a sign-in and a sign-out on the pages of the server are known to the application', async (t) => {
    const more = { publicUrl: undefined, accountPages: true } as object;
    const backend = await startBackend(t, more);
    await backend.users.create({ ...CREDENTIALS, emailVerified: true });
    const [page, other] = await openTabs(t, browser, backend, { storage: 'cookie' });
    const red = redLinesOf(page);
    t.strictSame(await inEach([page, other], whoIn), [null, null]);
    await page.goto(`${backend.origin}/account/sign-in`);
    await page.getByLabel('E-mail').fill(CREDENTIALS.email);
    await page.getByLabel('Password').fill(CREDENTIALS.password);
    await page.getByRole('button', { name: 'Sign in', exact: true }).click();
    await page.waitForURL(`${backend.origin}/account`);
    await page.goto(backend.origin);
    t.equal(await whoIn(page), CREDENTIALS.email);
    t.strictSame(await profiles(page, 3), [CREDENTIALS.email]);
    await changesAre(other, 'login');
    t.equal(await whoIn(other), CREDENTIALS.email);

    await page.goto(`${backend.origin}/account/sign-out`);
    await page.getByRole('button', { name: 'Sign out', exact: true }).click();
    await page.waitForURL((url) => url.pathname !== '/account/sign-out');
    await page.goto(backend.origin);
    const before = backend.requests.length;
    t.equal(await whoIn(page), null);
    t.equal(await whoIn(other), null);
    await changesAre(other, 'login', 'logout');
    t.equal(backend.requests.length, before);
    t.strictSame(red, []);
  });

  t.test('a session in the cookie that was ended elsewhere is none, without red lines', async (t) => {
    const backend = await startBackend(t);
    const [page] = await openTabs(t, browser, backend, { storage: 'cookie' });
    const red = redLinesOf(page);
    await register(page);
    const user = await backend.users.find({ email: CREDENTIALS.email });
    await backend.users.suspend({ id: user?.id ?? '' });
    t.equal(await whoIn(page), null);
    await endsWith(page, 1, 'revoked');
    await page.reload();
    t.equal(await whoIn(page), null);
    t.strictSame(red, []);
  });

  for (const storage of ['cookie', 'localStorage'] as const) {
    t.test(`a person signs in at a provider, ${storage}`, async (t) => {
      const provider = await fakeProvider(t);
      const login = { acme: { ...CLIENT, issuer: provider.url, label: 'Acme' } };
      const backend = await startBackend(t, { publicUrl: undefined, login } as object);
      const [page, other] = await openTabs(t, browser, backend, { storage });
      const leave = async (options: object) => {
        const arrival = page.waitForURL((url) => /[?&](ticket|error)=/.test(url.search));
        await page.evaluate(
          (given) => (globalThis as unknown as PageGlobals).client.signIn.provider('acme', given),
          options,
        );
        await arrival;
      };
      /** Two effects of a framework ask at the same time. */
      const complete = () =>
        page.evaluate(async () => {
          const { signIn } = (globalThis as unknown as PageGlobals).client;
          const [one, two] = await Promise.allSettled([signIn.complete(), signIn.complete()]);
          const shown = JSON.stringify(one) === JSON.stringify(two) && one;
          return shown && shown.status === 'rejected' ? { code: shown.reason.code } : shown;
        });
      t.strictSame(await complete(), { status: 'fulfilled', value: null }, 'opened in another way');
      await leave({ returnTo: '/?from=shop' });
      t.match(await complete(), { value: { user: { email: 'ada@example.test' } } });
      t.equal(page.url(), `${backend.origin}/?from=shop`, 'without the ticket');
      t.equal(await whoIn(page), 'ada@example.test');
      await changesAre(other, 'login');
      await page.reload();
      t.equal(await whoIn(page), 'ada@example.test');
      await page.goto(`${backend.origin}/?ticket=12`);
      t.strictSame(await complete(), { status: 'fulfilled', value: null }, 'a ticket of the application');
      t.match(page.url(), '?ticket=12');

      provider.lies.error = 'access_denied';
      await page.goto(`${backend.origin}/?tab=2`);
      await leave({});
      t.strictSame(await complete(), { code: 'CANCELLED' });
      t.equal(page.url(), `${backend.origin}/?tab=2`, 'back on the same page');

      provider.lies = {};
      await logout(page);
      await backend.users.create({ email: 'bob@example.test', password: PASSWORD, emailVerified: true });
      provider.person = { ...provider.person, sub: 'bob-1', email: 'bob@example.test' };
      await leave({ returnTo: undefined });
      t.strictSame(await complete(), { code: 'ACCOUNT_EXISTS' });
      await page.evaluate((body) => (globalThis as unknown as PageGlobals).client.auth.login(body), {
        email: 'bob@example.test',
        password: PASSWORD,
      });
      await leave({ connect: true });
      t.match(await complete(), { value: { identity: { provider: 'acme', email: 'bob@example.test' } } });
      t.equal(await whoIn(page), 'bob@example.test');
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

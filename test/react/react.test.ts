import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import type { Page } from 'playwright-core';
import { createElement } from 'react';
import { renderToString } from 'react-dom/server';
import { rolldown } from 'rolldown';
import t from 'tap';
import { type ActiveSession, createClient, type SaasClient } from '../../src/client/index.js';
import { SaasProvider, useSession } from '../../src/react/index.js';
import { CREDENTIALS, startBackend } from '../client/kit.js';
import { onChromium } from '../kit/chromium.js';
import { waitUntil } from '../kit/wait.js';
import { App } from './app.js';

/** The hooks, rendered on a server and in a browser. */

const here = (file: string) => fileURLToPath(new URL(file, import.meta.url));

/** A script of a page. */
async function scriptOf(input: string, external: string[] = []): Promise<string> {
  await using bundle = await rolldown({
    ...{ input, external, platform: 'browser', cwd: here('../../..') },
    // The bundler of an application reads it.
    onLog: (level, log, report) => log.code !== 'MODULE_LEVEL_DIRECTIVE' && report(level, log),
    transform: { define: { 'process.env.NODE_ENV': '"development"' } },
  });
  const { output } = await bundle.generate({ format: external.length > 0 ? 'esm' : 'iife', minify: true });
  return output[0].code;
}

const session = {
  user: {
    ...{ id: 'usr_1', email: 'ada@example.test', name: 'Ada', emailVerified: true },
    createdAt: '2026-01-01T00:00:00.000Z',
    subscription: { status: 'active', plan: 'pro', entitled: true },
  },
  session: { id: 'ses_1' },
  organization: null,
  features: ['export'],
} as unknown as ActiveSession;

/** A client that may not be asked. */
const silent = () =>
  createClient({ baseUrl: '/api', storage: 'cookie', fetch: () => Promise.reject(new Error('a request')) });

t.test('the hooks have less than 3 kB', async (t) => {
  const code = await scriptOf(here('../../src/react/index.js'), ['react']);
  const bytes = gzipSync(code, { level: 9 }).length;
  t.comment(`${bytes} bytes`);
  t.ok(bytes < 3000);
  t.match(
    readFileSync(here('../../src/react/index.js'), 'utf8'),
    /^'use client';/,
    'frameworks see it first',
  );
});

t.test('a server renders what it has read, and sends no request', async (t) => {
  const render = (given?: ActiveSession | null) =>
    renderToString(createElement(App, { client: silent(), session: given })).replaceAll('<!-- -->', '');
  t.match(render(session), 'signed-in ada@example.test pro true export personal loading');
  t.match(render(null), 'signed-out nobody none false - personal signed-out');
  t.match(render(), 'loading nobody none false - personal loading');
  t.throws(() => renderToString(createElement(() => useSession().status)), /needs a <SaasProvider>/);
  t.match(renderToString(createElement(SaasProvider, { client: silent() as SaasClient }, 'child')), 'child');
});

await onChromium((browser) => {
  t.test('a page shows at once what the server has rendered, and follows all tabs', async (t) => {
    const plans = { free: { limits: { projects: 3 } } };
    const backend = await startBackend(t, { organizations: true, billing: { plans } } as object);
    const context = await browser.newContext();
    t.teardown(() => context.close());
    const script = await scriptOf(here('./page.js'));
    let given: ActiveSession | null | undefined = null;
    await context.route(`${backend.origin}/app`, (route) => {
      const content = renderToString(createElement(App, { client: silent(), session: given }));
      const state = given === undefined ? 'undefined' : JSON.stringify(given);
      const body = `<!doctype html><meta charset="utf-8"><div id="root">${content}</div><script>globalThis.GIVEN=${state}</script><script>${script}</script>`;
      return route.fulfill({ contentType: 'text/html', body });
    });
    const lines: string[] = [];
    const open = async (): Promise<Page> => {
      const page = await context.newPage();
      page.on(
        'console',
        (message) => ['error', 'warning'].includes(message.type()) && lines.push(message.text()),
      );
      page.on('pageerror', (error) => lines.push(String(error)));
      await page.goto(`${backend.origin}/app`);
      return page;
    };
    const shows = (page: Page, text: string) =>
      waitUntil(text, async () => (await page.locator('#root').innerText()).includes(text));
    const press = (page: Page, name: string) => page.getByRole('button', { name, exact: true }).click();

    const before = backend.requests.length;
    const [one, two] = [await open(), await open()];
    await shows(one, 'signed-out nobody none false - personal signed-out');
    t.equal(backend.requests.length, before, 'the server has said that nobody is signed in');
    await press(one, 'Register');
    for (const page of [one, two])
      await shows(page, 'signed-in ada@example.test free false - personal signed-in 3 left');

    /** As a server reads it, with the cookie of the browser. */
    const read = (): Promise<ActiveSession> =>
      one.evaluate(async () => {
        const answer = await fetch('/api/auth/session', { headers: { 'session-mode': 'cookie' } });
        return ((await answer.json()) as { data: { session: ActiveSession } }).data.session;
      });
    given = await read();
    const count = backend.requests.length;
    const [three, five] = [await open(), await open()];
    await shows(three, 'signed-in ada@example.test free false - personal signed-in 3 left');
    t.strictSame(
      backend.requests.slice(count).filter((request) => request.includes('session')),
      [],
      'what the server has read is not asked for again',
    );
    await backend.users.update({ email: CREDENTIALS.email }, { emailVerified: true });
    await press(three, 'Organize');
    await shows(three, 'Engines signed-in');
    await press(three, 'Alone');
    await shows(three, 'personal signed-in');
    await backend.users.update({ email: CREDENTIALS.email }, { name: 'Ada Lovelace' });
    await press(three, 'Reload');
    await shows(three, 'Ada Lovelace');
    await press(two, 'Sign out');
    for (const page of [one, two, three, five]) await shows(page, 'signed-out nobody');
    given = undefined;
    const four = await open();
    await shows(four, 'signed-out nobody');

    t.strictSame(lines, [], 'neither warnings nor errors');
    await context.route('**/auth/session', (route) => route.fulfill({ status: 503, body: '' }));
    await press(four, 'Sign in');
    await shows(four, 'failed 503');
    await context.unroute('**/auth/session');
    await press(four, 'Reload');
    await shows(four, 'signed-in ada@example.test');

    given = await read();
    // Before the page has tokens, with which it could go on.
    await context.clearCookies();
    const six = await open();
    await shows(six, 'signed-out nobody');
  });
});

t.test('the package that applications have is React 18 or later', async (t) => {
  const { version } = createRequire(import.meta.url)('react/package.json') as { version: string };
  t.ok(Number.parseInt(version, 10) >= 18, version);
});

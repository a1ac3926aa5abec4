import type { BrowserContext } from 'playwright-core';
import t, { type Test } from 'tap';
import { createServer } from '../../src/saas/server.js';
import { basic, PASSWORD, SECRETS, testOptions } from '../kit/app.js';
import { onChromium } from '../kit/chromium.js';
import { collectRoutes } from '../kit/fuzz/engine.js';
import { countedRandom } from '../kit/random.js';
import { readRows } from '../kit/sqlite.js';
import { temporaryFolder } from '../kit/tmp.js';
import { serveElsewhere } from './kit.js';

/** A page of another site against the admin area, in a browser that has cached the credentials of the operator. */

const KEY = 'settings-Kq8ZsT1mXe6YbN0cRj4HuPd9';

/** What the admin area can change. Jobs, throttles, the audit and the attempts to send a mail change without it. */
const STATE = [
  ...['users', 'sessions', 'settings', 'subscriptions', 'payments'].map(
    (table) => `SELECT id, doc FROM ${table}`,
  ),
  'SELECT id FROM mails',
];

/** In the page: submits a form with these fields. */
const submitForm = (action: string, fields: object) => `
  const form = Object.assign(document.createElement('form'), { method: 'post', action: ${JSON.stringify(action)} });
  for (const [name, value] of Object.entries(${JSON.stringify(fields)}))
    form.append(Object.assign(document.createElement('input'), { name, value }));
  document.body.append(form);
  form.submit();`;

/** In the page: clicks on a link. */
const followLink = (href: string) => `
  const link = Object.assign(document.createElement('a'), { href: ${JSON.stringify(href)} });
  document.body.append(link);
  link.click();`;

/** In the page: requests of a script without CORS, and images. */
const sendRequests = (target: string, posts: string[], gets: string[], body: string) => `(async () => {
  const [target, posts, gets, body] = ${JSON.stringify([target, posts, gets, body])};
  const send = (path, init) =>
    fetch(target + path, { mode: 'no-cors', credentials: 'include', ...init }).catch(() => undefined);
  for (const path of posts)
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data'])
      await send(path, { method: 'POST', headers: { 'content-type': type }, body });
  for (const path of gets) {
    await send(path, {});
    await new Promise((resolve) => {
      Object.assign(new Image(), { onload: resolve, onerror: resolve, src: target + path + '?confirm=ada@example.test' });
    });
  }
})()`;

interface Reached {
  method: string;
  path: string;
  status: number;
  isOperator: boolean;
}

async function operated(t: Test) {
  const options = testOptions(temporaryFolder(t));
  const server = createServer({
    ...options,
    random: countedRandom(),
    settingsEncryptionKey: KEY,
    customSettings: { seats: { schema: { type: 'integer' }, default: 1 } },
    // Nothing but the page under test changes the store.
    publicUrl: 'http://app.example.test',
  });
  t.teardown(() => server.stop());
  const routes = collectRoutes(server.fastify);
  const reached: Reached[] = [];
  server.fastify.addHook('onResponse', async ({ method, url, headers }, { statusCode: status }) => {
    reached.push({ method, path: url, status, isOperator: headers.authorization === basic() });
  });
  const { port } = await server.start();
  const registered = await server.fastify.inject({
    method: 'POST',
    url: '/api/auth/register',
    payload: { email: 'ada@example.test', password: PASSWORD },
  });
  const { id } = registered.json().data.user;
  const sessions = await server.fastify.inject({
    url: `/admin/api/users/${id}/sessions`,
    headers: { authorization: basic() },
  });
  const session = sessions.json().data.items[0].id;
  const paths = (wanted: string) =>
    routes
      .filter(({ method, url: path }) => method === wanted && /^\/admin\b/.test(path))
      .map(({ url: path }) => path.replace(':session', session).replace(':id', id));
  const file = options.databaseUri.replace('sqlite:', '');
  const state = () => STATE.map((query) => JSON.stringify(readRows(file, `${query} ORDER BY id`)));
  return { port, reached, paths, state };
}

/** Opens the admin area once, so that the browser keeps the credentials. */
async function signIn(context: BrowserContext, origin: string): Promise<void> {
  const page = await context.newPage();
  const { adminUsername, adminPassword } = SECRETS;
  const credentials = `${adminUsername}:${encodeURIComponent(adminPassword)}`;
  const response = await page.goto(`${origin.replace('//', `//${credentials}@`)}/admin/users`);
  if (response?.status() !== 200) throw new Error('The operator could not sign in.');
  await page.close();
}

await onChromium((browser) => {
  for (const { site, host, share } of [
    { site: 'another site', host: 'localhost', share: 1 },
    // What differs is one header: some of the paths are enough.
    { site: 'another origin of the same site', host: '127.0.0.1', share: 5 },
  ]) {
    t.test(`a page of ${site} changes nothing in the admin area with the cached credentials`, async (t) => {
      const { port, reached, paths, state } = await operated(t);
      const target = `http://127.0.0.1:${port}`;
      const attacks = await serveElsewhere(t, (_, response) => {
        response.setHeader('content-type', 'text/html').end('<!doctype html><title>Attack</title>');
      });
      const attacker = attacks.url.replace('127.0.0.1', host);
      const context = await browser.newContext();
      t.teardown(() => context.close());
      await signIn(context, target);
      const before = state();
      reached.length = 0;

      const page = await context.newPage();
      const some = (method: string) => paths(method).filter((_, index) => index % share === 0);
      const [posts, gets] = [some('POST'), some('GET')];
      t.ok(
        posts.length > 20 / share && gets.length > 20 / share,
        `${posts.length} actions, ${gets.length} pages`,
      );
      const changes = {
        name: 'Taken over',
        confirm: 'ada@example.test',
        plan: 'pro',
        siteName: 'Taken over',
      };

      // A form that the page submits itself, as a visit of the whole tab: the browser adds the credentials.
      const visit = async (script: string) => {
        await page.goto(attacker);
        await Promise.all([page.waitForNavigation(), page.evaluate(script)]);
      };
      for (const path of posts) {
        const token = `9${'9'.repeat(13)}.${'A'.repeat(43)}`;
        await visit(submitForm(target + path, { ...changes, version: '0', token }));
      }
      await page.goto(attacker);
      await page.evaluate(sendRequests(target, posts, gets, JSON.stringify(changes)));
      for (const path of [...gets, ...posts]) {
        // The browser saves these instead of showing them.
        if (!path.endsWith('.csv')) await visit(followLink(target + path));
      }

      const asOperator = reached.filter(({ isOperator }) => isOperator);
      const written = asOperator.filter(({ method }) => method !== 'GET');
      for (const path of posts)
        t.ok(
          written.some((one) => one.path === path),
          `${path} was reached as the operator`,
        );
      t.same(
        written.filter(({ status }) => status < 400),
        [],
        'no change was accepted',
      );
      t.ok(
        asOperator.some(({ method, status }) => method === 'GET' && status === 200),
        'pages were read, which changes nothing',
      );
      t.same(state(), before, 'the store is as it was');
    });
  }
});

import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { createReadStream, existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { type RequestListener, request as send } from 'node:http';
import { dirname, extname, join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import t, { type Test } from 'tap';
import { selfSigned, serveElsewhere } from '../../browser/kit.js';
import { PASSWORD } from '../../kit/app.js';
import { ENV, npm, pack, personAt } from '../../kit/applications.js';
import { onChromium } from '../../kit/chromium.js';
import { serverPort } from '../../kit/port.js';
import { startProgram } from '../../kit/process.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';
import { blocksOf, readPage } from '../../package/documents/blocks.js';
import { type Application, EXPO, FRAMEWORKS } from './table.js';

/**
 * The applications of the pages about frameworks (docs/saas/nextjs.md and so on) and of docs/saas/expo.md, from their code blocks to
 * the sign-out in a browser: built without secrets, and started as in production, behind a proxy with TLS.
 */

const archive = await pack(t);

/** The files of a page, by the path in the comment of their first lines. */
function filesOf({ page }: Application): Record<string, string> {
  const files: Record<string, string> = {};
  for (const { text } of blocksOf(page)) {
    const path = /^(?:---\n)?(?:\/\/|<!--) \.\/(\S+)/.exec(text)?.[1];
    if (path) files[path] = text;
  }
  return files;
}

/** What the page says in sentences: where the API's file also is, that a paid page is like the dashboard, the host of Astro. */
function completed(files: Record<string, string>): Record<string, string> {
  const all = { ...files };
  const isPaidPageWritten = Object.values(files).some((text) => text.includes('reports'));
  for (const [path, text] of Object.entries(files)) {
    all[path] = text.replaceAll('app.example.com', 'localhost');
    for (const other of ['account', 'admin'])
      if (path.includes('/api/[')) all[path.replace('/api/', `/${other}/`)] = text;
    if (isPaidPageWritten) continue;
    if (path.includes('dashboard'))
      all[path.replace('dashboard', 'reports')] = text.replaceAll('dashboard', 'reports');
    else
      all[path] =
        all[path]?.replace(/^.*dashboard.*\n/m, (line) => line + line.replaceAll('dashboard', 'reports')) ??
        '';
  }
  return all;
}

/** The application with its packages, in a folder. */
async function build(t: Test, application: Application): Promise<string> {
  const { heading, packages, files, main, overrides } = application;
  const cwd = temporaryFolder(t);
  const exact = Object.values(packages).filter((version) => /^\d/.test(version));
  for (const version of exact) t.match(readPage(application.page), version, `the page names ${version}`);
  const manifest = { private: true, type: 'module', main, dependencies: packages, overrides };
  const all = { 'package.json': JSON.stringify(manifest), ...files, ...completed(filesOf(application)) };
  for (const [path, text] of Object.entries(all)) {
    mkdirSync(dirname(join(cwd, path)), { recursive: true });
    writeFileSync(join(cwd, path), text);
  }
  await npm(t, `${heading}: install`, cwd, 'install', '--no-audit', '--no-fund', archive);
  return cwd;
}

/** The proxy in front of a server, with the headers that the page asks for. */
const proxyOf =
  (port: number): RequestListener =>
  (request, response) => {
    const { headers, method, url: path, socket } = request;
    const forwarded = {
      'x-forwarded-proto': 'https',
      'x-forwarded-host': headers.host,
      'x-forwarded-for': [headers['x-forwarded-for'], socket.remoteAddress].filter(Boolean).join(', '),
    };
    const to = { host: '127.0.0.1', port, method, path, headers: { ...headers, ...forwarded } };
    const onward = send(to, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.rawHeaders);
      answer.pipe(response);
    });
    onward.once('error', (error) => response.destroy(error));
    request.pipe(onward);
  };

const TYPES: Record<string, string> = { '.html': 'text/html', '.js': 'text/javascript' };

/** The files of an application with one document, which it has for every other path. */
const filesIn =
  (folder: string): RequestListener =>
  ({ url = '/' }, response) => {
    const path = join(folder, new URL(url, 'http://localhost').pathname);
    const file = extname(path) && existsSync(path) ? path : join(folder, 'index.html');
    response.setHeader('content-type', TYPES[extname(file)] ?? 'application/octet-stream');
    createReadStream(file).pipe(response);
  };

/** Serves at another port of localhost with TLS. */
async function serveOnLocalhost(t: Test, listener: RequestListener): Promise<string> {
  const { url } = await serveElsewhere(t, listener, { tls: selfSigned() });
  return url.replace('127.0.0.1', 'localhost');
}

const secret = () => randomBytes(48).toString('base64');

/** Starts the server of an application behind a proxy. */
async function start(t: Test, cwd: string, [program = '', ...args]: string[], more = {}) {
  const port = await serverPort();
  const origin = await serveOnLocalhost(t, proxyOf(port));
  const env = {
    ...ENV,
    NODE_ENV: 'production',
    HOST: '127.0.0.1',
    PORT: String(port),
    PUBLIC_URL: origin,
    TRUST_PROXY: '127.0.0.1',
    DATABASE_URI: `sqlite:${join(cwd, 'app.db')}`,
    JWT_ACCESS_SECRET: secret(),
    JWT_REFRESH_SECRET: secret(),
    ADMIN_PASSWORD: secret(),
    ...more,
  };
  const { lines } = startProgram(t, program, { cwd, env, args });
  const answers = () =>
    fetch(`http://127.0.0.1:${port}/`).then(
      () => true,
      () => false,
    );
  await waitUntil('the server listens', answers);
  const bin = 'node_modules/saas-backend/dist/bin/saas-backend.js';
  const grant = (email: string) =>
    execFileSync(process.execPath, [bin, 'user', 'grant', email, 'pro'], { env, cwd });
  return { origin, lines, grant };
}

/** A page without cookies, for a visit whose failure shows the page and the last lines of the server. */
async function visit(
  t: Test,
  browser: Browser,
  lines: readonly string[],
  tour: (page: Page) => Promise<void>,
): Promise<void> {
  const context = await browser.newContext({ ignoreHTTPSErrors: true });
  t.teardown(() => context.close());
  const page = await context.newPage();
  try {
    await tour(page);
    t.pass('signed out');
  } catch (error) {
    t.comment(await page.content().catch(String), lines.slice(-40).join('\n'));
    throw error;
  }
}

const EMAIL = 'ada@example.test';

await onChromium((browser) => {
  for (const framework of FRAMEWORKS)
    t.test(`an application with ${framework.heading} works from the page to the sign-out`, async (t) => {
      const cwd = await build(t, framework);
      await npm(t, `${framework.heading}: build`, cwd, 'exec', '--', ...framework.build);
      const { origin, lines, grant } = await start(t, cwd, framework.start);
      await visit(t, browser, lines, async (page) => {
        const { open, press, shows, isAskedToSignIn, signUp, signOut } = personAt(page, origin);
        await open('/dashboard');
        await isAskedToSignIn();
        await signUp(EMAIL);
        await open('/dashboard');
        await shows(`Welcome, ${EMAIL}`);
        await open('/reports');
        await shows('Choose a plan');
        grant(EMAIL);
        await open('/reports');
        await shows('For subscribers');

        // A session survives what browsers repeat, and the server has rendered the page.
        const reads = await Promise.all([1, 2, 3].map(() => page.request.get(`${origin}/dashboard`)));
        const texts = await Promise.all(reads.map((read) => read.text()));
        const inDocument = framework.isRenderedInBrowser ? '<script' : EMAIL;
        t.ok(texts.every((text) => text.includes(inDocument)));
        await open('/dashboard');
        if (framework.hasAction) {
          await page.getByLabel('Name').fill('Ada');
          await press('Save');
          await shows('Welcome, Ada');
        }
        await signOut();
        await open('/dashboard');
        await isAskedToSignIn();
      });
    });

  t.test('an application with Expo keeps its own tokens, at another origin than the API', async (t) => {
    const cwd = await build(t, EXPO);
    const origin = await serveOnLocalhost(t, filesIn(join(cwd, 'dist')));
    const { origin: api, lines, grant } = await start(t, cwd, ['server.js'], { CORS_ORIGIN: origin });
    writeFileSync(join(cwd, '.env'), `EXPO_PUBLIC_API_URL=${api}/api\n`);
    await npm(t, 'Expo: types', cwd, 'exec', '--', 'tsc', '--noEmit');
    await npm(t, 'Expo: export', cwd, 'exec', '--', 'expo', 'export', '--platform', 'web');
    await visit(t, browser, lines, async (page) => {
      const { open, press, follow, shows } = personAt(page, origin);
      const isAskedToSignIn = () => page.getByPlaceholder('E-mail').waitFor();
      await open('/reports');
      await isAskedToSignIn();
      await open('/');
      await page.getByPlaceholder('E-mail').fill(EMAIL);
      await page.getByPlaceholder('Password').fill(PASSWORD);
      await press('Sign up');
      await shows(`Welcome, ${EMAIL}`);
      await follow('Reports');
      await shows('For subscribers.');
      grant(EMAIL);
      await open('/reports');
      await shows('Your reports');
      await open('/');
      await shows(`Welcome, ${EMAIL}`);
      await press('Sign out');
      await isAskedToSignIn();
      await open('/reports');
      await isAskedToSignIn();
    });
  });
});

import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { type RequestListener, request as send } from 'node:http';
import { dirname, join } from 'node:path';
import t, { type Test } from 'tap';
import { selfSigned, serveElsewhere } from '../../browser/kit.js';
import { ENV, npm, pack, personAt } from '../../kit/applications.js';
import { onChromium } from '../../kit/chromium.js';
import { serverPort } from '../../kit/port.js';
import { startProgram } from '../../kit/process.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';
import { blocksOf, readPage } from '../../package/documents/blocks.js';
import { FRAMEWORKS, type Framework } from './table.js';

/**
 * The applications of docs/frameworks.md and docs/server-sessions.md, from their code blocks to the sign-out in a browser: built without secrets, and started as in
 * production, behind a proxy with TLS.
 */

const archive = await pack(t);

/** The text of a section. */
const sectionOf = ({ page, heading }: Framework): string =>
  readPage(page).split(`\n## ${heading}\n`)[1]?.split('\n## ')[0] ?? '';

/** The files of a section, by the path in the comment of their first lines. */
function filesOf(framework: Framework): Record<string, string> {
  const blocks = blocksOf(framework.page);
  const files: Record<string, string> = {};
  for (const { text } of blocks.filter((block) => block.heading === framework.heading)) {
    const path = /^(?:---\n)?(?:\/\/|<!--) \.\/(\S+)/.exec(text)?.[1];
    if (path) files[path] = text;
  }
  const backend = /The backend is\s+`\.\/(\S+)`/.exec(sectionOf(framework))?.[1];
  if (backend) files[backend] = blocks.find((block) => block.heading === '')?.text ?? '';
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

/** The application, built in a folder. */
async function build(t: Test, framework: Framework): Promise<string> {
  const { heading, packages, files, overrides } = framework;
  const cwd = temporaryFolder(t);
  const exact = Object.values(packages).filter((version) => /^\d/.test(version));
  for (const version of exact) t.match(sectionOf(framework), version, `the page names ${version}`);
  const manifest = { private: true, type: 'module', dependencies: packages, overrides };
  const all = { 'package.json': JSON.stringify(manifest), ...files, ...completed(filesOf(framework)) };
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

const secret = () => randomBytes(48).toString('base64');

await onChromium((browser) => {
  for (const framework of FRAMEWORKS)
    t.test(`an application with ${framework.heading} works from the page to the sign-out`, async (t) => {
      const { heading, build: script, start } = framework;
      const cwd = await build(t, framework);
      await npm(t, `${heading}: build`, cwd, 'exec', '--', ...script);

      const port = await serverPort();
      const { url } = await serveElsewhere(t, proxyOf(port), { tls: selfSigned() });
      const origin = url.replace('127.0.0.1', 'localhost');
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
      };
      const [program = '', ...args] = start;
      const server = startProgram(t, program, { cwd, env, args });
      const answers = () =>
        fetch(`http://127.0.0.1:${port}/`).then(
          () => true,
          () => false,
        );
      await waitUntil('the server listens', answers);

      const email = 'ada@example.test';
      const context = await browser.newContext({ ignoreHTTPSErrors: true });
      t.teardown(() => context.close());
      const page = await context.newPage();
      const { open, press, shows, isAskedToSignIn, signUp, signOut } = personAt(page, origin);
      try {
        await open('/dashboard');
        await isAskedToSignIn();
        await signUp(email);
        await open('/dashboard');
        await shows(`Welcome, ${email}`);
        await open('/reports');
        await shows('Choose a plan');

        const bin = 'node_modules/saas-backend/dist/bin/saas-backend.js';
        execFileSync(process.execPath, [bin, 'user', 'grant', email, 'pro'], { env, cwd });
        await open('/reports');
        await shows('For subscribers');

        // A session survives what browsers repeat, and the server has rendered the page.
        const reads = await Promise.all([1, 2, 3].map(() => page.request.get(`${origin}/dashboard`)));
        const texts = await Promise.all(reads.map((read) => read.text()));
        const inDocument = framework.isRenderedInBrowser ? '<script' : email;
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
        t.pass('signed out');
      } catch (error) {
        t.comment(await page.content().catch(String), server.lines.slice(-40).join('\n'));
        throw error;
      }
    });
});

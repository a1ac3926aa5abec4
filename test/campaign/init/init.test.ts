import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { promisify } from 'node:util';
import type { Page } from 'playwright-core';
import t, { type Test } from 'tap';
import { PASSWORD } from '../../kit/app.js';
import { onChromium } from '../../kit/chromium.js';
import { serverPorts } from '../../kit/port.js';
import { compiled, startCommand } from '../../kit/process.js';
import { temporaryFolder } from '../../kit/tmp.js';

/** What `npx saas-backend init` writes, from the packed package to the sign-out in a browser. */

const ROOT = join(compiled('.'), '..');
const run = promisify(execFile);

/** As of a user: the npm that runs the tests tells its programs about this repository. */
const ENV = Object.fromEntries(
  Object.entries(process.env).filter(
    ([name]) => !/^npm_(package|lifecycle)_|^INIT_CWD$|^NODE_ENV$/.test(name),
  ),
) as Record<string, string>;

async function pack(folder: string): Promise<string> {
  const args = ['pack', '--json', '--ignore-scripts', '--pack-destination', folder];
  const { stdout } = await run('npm', args, { cwd: ROOT, maxBuffer: 2 ** 26 });
  const [{ filename }] = Object.values(JSON.parse(stdout) as object);
  return join(folder, filename);
}

/** The application with its tests and its build; prints how long each step takes. */
async function createApplication(t: Test, framework: string): Promise<string> {
  const parent = temporaryFolder(t);
  const packed = await pack(parent);
  const timed = async (name: string, cwd: string, ...args: string[]) => {
    const since = performance.now();
    const { stdout } = await run('npm', args, { cwd, env: ENV, maxBuffer: 2 ** 26 });
    t.comment(`${framework}: ${name} ${((performance.now() - since) / 1000).toFixed(1)} s`);
    return stdout;
  };
  const init = ['exec', '--yes', `--package=${packed}`, '--', 'saas-backend', 'init', 'my-app', '--json'];
  const answer = await timed('init', parent, ...init, '--framework', framework, '--package', packed);
  const folder = join(parent, 'my-app');
  t.match(JSON.parse(answer), { folder, framework, installed: true });
  for (const script of ['typecheck', 'test', 'build']) await timed(script, folder, 'run', script);
  return folder;
}

const isOpen = async (port: number) => {
  const socket = connect(port, 'localhost');
  const isConnected = await once(socket, 'connect').then(
    () => true,
    () => false,
  );
  socket.destroy();
  return isConnected;
};

/** What a person does in the application, in development. */
async function visit(t: Test, page: Page, origin: string): Promise<void> {
  const press = (name: string) => page.getByRole('button', { name, exact: true }).click();
  const follow = (name: string) => page.getByRole('link', { name, exact: true }).click();
  const shows = (text: string | RegExp) => page.getByText(text).waitFor();

  await page.goto(origin);
  await follow('Dashboard');
  await page.waitForURL(/\/account\/sign-in\?return_to=%2Fdashboard$/);
  await page.goto(`${origin}/account/sign-up`);
  await page.getByLabel('E-mail address').fill('ada@example.test');
  await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
  await page.getByLabel('Confirm password').fill(PASSWORD);
  await press('Create account');
  await page.waitForURL(`${origin}/account`);
  await page.goto(`${origin}/dashboard`);
  await shows('Signed in as ada@example.test. Plan: free.');
  // A session survives what browsers repeat.
  await Promise.all([1, 2, 3].map(() => page.request.get(`${origin}/dashboard`)));
  await page.reload();
  await shows('Signed in as ada@example.test. Plan: free.');

  await follow('Reports');
  await follow('Choose a plan');
  await page.getByRole('button', { name: 'Choose: Professional' }).click();
  await press('Pay');
  await page.waitForURL(`${origin}/account/billing*`);
  await shows('Renews on');
  await page.goto(`${origin}/reports`);
  await shows('For subscribers such as ada@example.test.');

  await page.goto(`${origin}/account/keys`);
  await page.locator('#name').fill('Script');
  await page.getByRole('checkbox', { name: 'summary:read' }).check();
  await page.locator('form[action$="/create"] button').click();
  const key = (await page.locator('code').first().textContent()) ?? '';
  const summary = await fetch(`${origin}/summary`, { headers: { authorization: `Bearer ${key}` } });
  t.match([summary.status, await summary.json()], [200, { email: 'ada@example.test', plan: 'pro' }]);

  await page.goto(`${origin}/dashboard`);
  await follow('Sign out');
  await press('Sign out');
  await page.goto(`${origin}/dashboard`);
  await page.waitForURL(/\/account\/sign-in\?return_to=%2Fdashboard$/);
}

await onChromium((browser) => {
  for (const framework of ['fastify', 'express', 'hono'])
    t.test(`an application with ${framework} works from its creation to the sign-out`, async (t) => {
      const cwd = await createApplication(t, framework);
      const [port = 0, payments = 0] = await serverPorts(2);
      const env = { ...ENV, PORT: String(port), PAYMENTS_PORT: String(payments) };
      const origin = `http://localhost:${port}`;

      // npm passes no signal on to what a script runs.
      const { scripts } = JSON.parse(readFileSync(join(cwd, 'package.json'), 'utf8'));
      const path = `${join(cwd, 'node_modules/.bin')}:${ENV['PATH']}`;
      const development = startCommand(t, 'sh', {
        ...{ cwd, env: { ...env, PATH: path } },
        args: ['-c', `exec ${scripts.dev}`],
      });
      await development.printed(new RegExp(`^${origin}$`));
      const context = await browser.newContext();
      t.teardown(() => context.close());
      await visit(t, await context.newPage(), origin);
      t.equal(await development.terminate(), 0);
      t.same(await Promise.all([port, payments].map(isOpen)), [false, false], 'everything ends');

      const built = startCommand(t, process.execPath, { cwd, env, args: ['dist/main.js'] });
      await built.printed(new RegExp(`^${origin}$`));
      t.equal((await fetch(origin)).status, 200);
      t.equal(await built.terminate(), 0);
    });
});

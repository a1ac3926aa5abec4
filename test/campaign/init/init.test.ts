import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import t, { type Test } from 'tap';
import { ENV, npm, pack, personAt } from '../../kit/applications.js';
import { onChromium } from '../../kit/chromium.js';
import { serverPorts } from '../../kit/port.js';
import { startCommand } from '../../kit/process.js';
import { temporaryFolder } from '../../kit/tmp.js';

/** What `npx saas-backend init` writes, from the packed package to the sign-out in a browser. */

const archive = await pack(t);

/** The application with its tests and its build; prints how long each step takes. */
async function createApplication(t: Test, framework: string): Promise<string> {
  const parent = temporaryFolder(t);
  const timed = (name: string, cwd: string, ...args: string[]) =>
    npm(t, `${framework}: ${name}`, cwd, ...args);
  const init = ['exec', '--yes', `--package=${archive}`, '--', 'saas-backend', 'init', 'my-app', '--json'];
  const answer = await timed('init', parent, ...init, '--framework', framework, '--package', archive);
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
async function visit(t: Test, page: Page, origin: string, scope: string): Promise<void> {
  const { open, press, follow, shows, isAskedToSignIn, signUp } = personAt(page, origin);
  const email = 'ada@example.test';
  await open('/');
  await follow('Dashboard');
  await isAskedToSignIn();
  await signUp(email);
  await open('/dashboard');
  await shows(`Signed in as ${email}. Plan: free.`);
  // A session survives what browsers repeat.
  await Promise.all([1, 2, 3].map(() => page.request.get(`${origin}/dashboard`)));
  await page.reload();
  await shows(`Signed in as ${email}. Plan: free.`);

  await follow('Reports');
  await follow('Choose a plan');
  await page.getByRole('button', { name: 'Choose: Professional' }).click();
  await press('Pay');
  await page.waitForURL(`${origin}/account/billing*`);
  await shows('Renews on');
  await open('/reports');
  await shows(`For subscribers such as ${email}.`);

  await open('/account/keys');
  await page.locator('#name').fill('Script');
  await page.getByRole('checkbox', { name: scope }).check();
  await page.locator('form[action$="/create"] button').click();
  const key = (await page.locator('code').first().textContent()) ?? '';
  const summary = await fetch(`${origin}/summary`, { headers: { authorization: `Bearer ${key}` } });
  t.match([summary.status, await summary.json()], [200, { email, plan: 'pro' }]);

  await open('/dashboard');
  await follow('Sign out');
  await press('Sign out');
  await open('/dashboard');
  await isAskedToSignIn();
}

await onChromium((browser) => {
  for (const framework of ['fastify', 'express', 'hono', 'next'])
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
      // Next.js prints a label before it.
      const listens = new RegExp(`(^|\\s)${origin}\\s*$`);
      await development.printed(listens);
      const context = await browser.newContext();
      t.teardown(() => context.close());
      // Next.js has no scopes of its own: the routes of the API decide.
      await visit(t, await context.newPage(), origin, framework === 'next' ? 'profile:read' : 'summary:read');
      t.equal(await development.terminate(), 0);
      t.same(await Promise.all([port, payments].map(isOpen)), [false, false], 'everything ends');

      // Next.js ends at once, with the code of a signal.
      const [args, code] =
        framework === 'next' ? [['node_modules/next/dist/bin/next', 'start'], 143] : [['dist/main.js'], 0];
      const built = startCommand(t, process.execPath, { cwd, env, args });
      await built.printed(listens);
      t.equal((await fetch(origin)).status, 200);
      t.equal(await built.terminate(), code);
    });
});

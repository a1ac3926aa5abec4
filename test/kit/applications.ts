import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { promisify } from 'node:util';
import type { Page } from 'playwright-core';
import type { Test } from 'tap';
import { PASSWORD } from './app.js';
import { compiled } from './process.js';
import { temporaryFolder } from './tmp.js';

/** Applications that install the packed package, and a person who visits them in a browser. */

const run = promisify(execFile);

/** As of a user: the npm that runs the tests tells its programs about this repository. */
export const ENV = Object.fromEntries(
  Object.entries(process.env).filter(
    ([name]) => !/^npm_(package|lifecycle)_|^INIT_CWD$|^NODE_ENV$/.test(name),
  ),
) as Record<string, string>;

/** Packs this package. Returns the path of the archive, which is removed after the test. */
export async function pack(t: Test): Promise<string> {
  const folder = temporaryFolder(t);
  const args = ['pack', '--json', '--ignore-scripts', '--pack-destination', folder];
  const { stdout } = await run('npm', args, { cwd: join(compiled('.'), '..'), maxBuffer: 2 ** 26 });
  const [{ filename }] = Object.values(JSON.parse(stdout) as object);
  return join(folder, filename);
}

/** Runs npm in a folder; prints how long it takes. */
export async function npm(t: Test, name: string, cwd: string, ...args: string[]): Promise<string> {
  const since = performance.now();
  const running = run('npm', args, { cwd, env: ENV, maxBuffer: 2 ** 26 });
  const { stdout } = await running.catch(({ message, stdout }) => {
    throw new Error(`${message}\n${stdout.slice(-3000)}`);
  });
  t.comment(`${name} ${((performance.now() - since) / 1000).toFixed(1)} s`);
  return stdout;
}

/** What a person does at an application whose page for users is `/dashboard`. */
export function personAt(page: Page, origin: string) {
  const press = (name: string) => page.getByRole('button', { name, exact: true }).click();
  const follow = (name: string) => page.getByRole('link', { name, exact: true }).click();
  return {
    press,
    follow,
    open: (path: string) => page.goto(origin + path),
    shows: (text: string | RegExp) => page.getByText(text).first().waitFor(),
    isAskedToSignIn: () => page.waitForURL(/\/account\/sign-in\?return_to=(%2F|\/)dashboard$/),
    async signUp(email: string): Promise<void> {
      await page.goto(`${origin}/account/sign-up`);
      await page.getByLabel('E-mail address').fill(email);
      await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
      await page.getByLabel('Confirm password').fill(PASSWORD);
      await press('Create account');
      await page.waitForURL(`${origin}/account`);
    },
    async signOut(): Promise<void> {
      await page.goto(`${origin}/account/sign-out`);
      await press('Sign out');
    },
  };
}

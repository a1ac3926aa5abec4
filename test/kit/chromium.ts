import { accessSync, constants } from 'node:fs';
import { type Browser, chromium } from 'playwright-core';
import t, { type Test } from 'tap';
import { withOrSkip } from './skip.js';

/** A real browser for the tests: an installed Chromium, headless. */

const EXECUTABLE = process.env['CHROMIUM'] ?? '/usr/bin/chromium';

const ARGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  // A process for each origin that a test visits takes longer than the visit, and no test depends on it.
  '--disable-site-isolation-trials',
  '--disable-features=IsolateOrigins,site-per-process',
  '--renderer-process-limit=1',
];

/** For the start and each step: how long they take depends on what else the machine does. The default is 30 seconds. */
const TIMEOUT_MS = 120_000;

/**
 * Starts Chromium with an empty profile, which is removed after the test. Each `browser.newContext()` has
 * its own cookies.
 */
export async function startChromium(t: Test): Promise<Browser> {
  accessSync(EXECUTABLE, constants.X_OK);
  const browser = await chromium.launch({ executablePath: EXECUTABLE, args: ARGS, timeout: TIMEOUT_MS });
  browser.on('context', (context) => context.setDefaultTimeout(TIMEOUT_MS));
  t.teardown(() => browser.close());
  return browser;
}

/** The browser of this process, shared by all tests of a file. */
let shared: Promise<Browser> | undefined;

/** Runs tests in Chromium. Without it they are skipped, which is reported; with CI=true they fail. */
export async function onChromium(tests: (browser: Browser) => void): Promise<void> {
  const missing = {
    name: 'chromium',
    subject: 'What browsers do',
    want: 'a Chromium',
    remedy: 'Install chromium, or set CHROMIUM to the path of one.',
  };
  const start = () => {
    shared ??= startChromium(t);
    return shared;
  };
  await withOrSkip(missing, start, tests);
}

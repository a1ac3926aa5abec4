import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { createInterface } from 'node:readline/promises';
import { pathToFileURL } from 'node:url';
import { openProviderSetup } from '../../src/saas/administration.js';
import type { PushedChange } from '../../src/saas/billing/push.js';
import type { CommandLine, CommonOptions } from '../command.js';
import { SAAS, withStore } from '../store.js';
import { complain, fail, say } from '../terminal.js';

interface PushOptions extends CommonOptions {
  plans?: string;
  dryRun?: true;
  yes?: true;
  live?: true;
  prefix: string;
}

const PUSH = `Bring the account at the payment provider to what the plans and this program need: products and prices of the plans that have a \
lookup key, settings of the customer portal, and the webhook endpoint with its event types.

The command compares first, prints the difference and asks. The signing secret of a new endpoint is printed once. A price whose amount has \
changed is replaced: running subscriptions keep the former one. Nothing else is removed, and a second run finds nothing to do. With a key of \
live mode, --live is required for a change.`;

export function definePush(group: CommandLine): void {
  group
    .command('push')
    .summary('Create products, prices, portal settings and the webhook endpoint at the payment provider')
    .description(PUSH)
    .option('--plans <file>', 'JSON, or a module that exports plans; default: BILLING_PLANS')
    .option('--dry-run', 'Print the difference and change nothing')
    .option('--yes', 'Do not ask')
    .option('--live', 'Allow changes with a key of live mode')
    .option('--prefix <path>', 'Path of the API', '/api')
    .examples(
      'saas-backend billing push --plans plans.json --dry-run',
      'saas-backend billing push --plans plans.mjs --yes',
      'saas-backend billing push --live',
    )
    .action(push);
}

async function push(options: PushOptions, command: CommandLine): Promise<void> {
  const { json, dryRun = false, yes = false, live, prefix, plans: file } = options;
  if (!/^\/[\w/-]*$/.test(prefix)) command.error(`error: --prefix takes a path like /api, not '${prefix}'.`);
  const canAsk = process.stdin.isTTY && !json;
  if (!dryRun && !yes && !canAsk)
    command.error('error: there is no terminal to ask. Use --yes or --dry-run.');
  const plans = file === undefined ? undefined : await readPlans(file);
  await withStore(
    SAAS,
    async () => openProviderSetup({ prefix: prefix.replace(/\/$/, ''), plans }),
    async (setup) => {
      const changes = await setup.compare();
      if (!setup.isReachable)
        complain(
          'PUBLIC_URL is no public https address, so the webhook endpoint is left alone: use stripe listen.',
        );
      if (!json) say(changes.length > 0 ? changes.map(describe).join('\n') : 'Nothing to do.');
      const isApplied = changes.length > 0 && !dryRun && (yes || (await confirm()));
      if (isApplied && setup.isLive && !live)
        fail(
          1,
          'PAYMENT_SECRET_KEY may be a key of live mode: add --live to change what customers pay with.',
        );
      let secret: string | undefined;
      if (isApplied) for (const change of changes) secret = (await change.apply()) ?? secret;
      if (json) {
        const shown = changes.map(({ action, about, details }) => ({ action, about, details }));
        say(JSON.stringify({ changes: shown, applied: isApplied, ...(secret !== undefined && { secret }) }));
      } else if (isApplied) say(secret === undefined ? 'Done.' : `Done.\nPAYMENT_WEBHOOK_SECRET=${secret}`);
      if (secret !== undefined)
        complain(
          'This secret is shown once: set it where the server reads its variables, and restart the server.',
        );
    },
  );
}

/** The plans of a file: those of the option `billing`, with or without it. */
async function readPlans(file: string): Promise<unknown> {
  const read = async (): Promise<unknown> => {
    if (file.endsWith('.json')) return JSON.parse(readFileSync(file, 'utf8'));
    const {
      default: exported,
      billing = exported,
      plans = billing,
    } = await import(pathToFileURL(resolve(file)).href);
    return plans;
  };
  const plans = await read().catch((error: unknown) =>
    fail(1, `--plans: ${file} cannot be read: ${(error as Error).message}`),
  );
  const isOption = typeof plans === 'object' && plans !== null && Object.keys(plans).join() === 'plans';
  return isOption ? plans : { plans };
}

const SIGNS = { create: '+', update: '~' };

const describe = ({ action, about, details }: PushedChange): string =>
  [`${SIGNS[action]} ${about}`, ...details.map((line) => `    ${line}`)].join('\n');

async function confirm(): Promise<boolean> {
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return /^y(es)?$/i.test((await terminal.question('Apply these changes? [y/N] ')).trim());
  } finally {
    terminal.close();
  }
}

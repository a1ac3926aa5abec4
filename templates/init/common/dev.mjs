/**
 * Development: runs the command of its arguments and, without a key of Stripe, the stand-in for Stripe of saas-backend beside it. The
 * stand-in keeps purchases in memory and charges nothing.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';

// The first value of a variable counts, as in Next.js.
for (const file of ['.env.local', '.env']) if (existsSync(file)) process.loadEnvFile(file);
const { env } = process;
env.PORT ??= '3000';
env.LOG_LEVEL ??= 'warn';
const children = [];

if (!env.PAYMENT_SECRET_KEY) {
  const port = env.PAYMENTS_PORT ?? '4242';
  env.PAYMENT_API_URL = `http://127.0.0.1:${port}`;
  env.PAYMENT_SECRET_KEY = 'sk_test_local';
  env.PAYMENT_WEBHOOK_SECRET = 'whsec_test';
  const standIn = 'node_modules/saas-backend/examples/payment-provider.mjs';
  const options = { env: { ...env, PORT: port, APP: `http://localhost:${env.PORT}` }, stdio: 'inherit' };
  children.push(spawn(process.execPath, [standIn], options));
}

const [command, ...args] = process.argv.slice(2);
// On Windows, commands of packages are scripts, which need a shell.
children.push(spawn(command, args, { shell: process.platform === 'win32', stdio: 'inherit' }));

// What ends first ends the other.
const end = () => {
  for (const child of children) child.kill();
};
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, end);
const [code] = await Promise.race(children.map((child) => once(child, 'exit')));
process.exitCode = code ?? 0;
end();

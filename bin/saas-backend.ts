#!/usr/bin/env node
import { run } from './cli.js';

await run({
  name: 'saas-backend',
  summary: 'Accounts, sessions, payment events and an admin area over HTTP.',
  environment: `Environment variables configure the rest, also from a .env file in the current folder;
the .env.example of this package lists them. With NODE_ENV=production nothing is made up.`,
  groups: {
    serve: () => import('./commands/serve.js'),
    backup: () => import('./commands/backup.js'),
    doctor: () => import('./commands/doctor.js'),
    user: () => import('./commands/user.js'),
    billing: () => import('./commands/billing.js'),
  },
  standard: 'serve',
  storeVariable: 'DATABASE_URI',
  examine: async () => (await import('../src/saas/doctor.js')).examineSaas(),
  createServer: async (flags) => (await import('../src/saas/server.js')).createServer(flags),
  introduce({ configuration: { values, generated } }, url) {
    const { adminUsername, adminPassword } = values;
    const isGenerated = generated.names.includes('ADMIN_PASSWORD');
    const account = `-H 'content-type: application/json' -d '{"email":"ada@example.com","password":"a sentence is fine"}'`;
    return {
      addresses: { API: `${url}/api`, Admin: `${url}/admin`, Health: `${url}/health` },
      credentials: isGenerated ? { 'Admin user': adminUsername, 'Admin password': adminPassword ?? '' } : {},
      commands: [
        `curl ${url}/api/auth/register ${account}`,
        `curl ${url}/api/auth/login ${account}`,
        // Without the password curl asks for it.
        `curl -u '${adminUsername}${isGenerated ? `:${adminPassword}` : ''}' ${url}/admin/api/settings`,
      ],
    };
  },
});

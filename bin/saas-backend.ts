#!/usr/bin/env node
import { examples } from './command.js';
import { apiReference, run } from './program.js';

await run({
  name: 'saas-backend',
  summary: 'Accounts, sessions, payment events and an admin area over HTTP.',
  commands: {
    serve: 'Start the server (default)',
    init: 'Create an application with Fastify, Express, Hono or Next.js',
    backup: 'Copy the store into a new file',
    store: 'Move to another database: copy, sql',
    audit: 'Read the audit: list, purge',
    doctor: 'Check the configuration, the store and the port',
    user: 'Manage users: create, import, list, show, suspend, unsuspend, roles, operator-role, grant, reset, export, delete',
    billing: 'Repair subscriptions, link customers, set up the provider: resync, import, push',
  },
  defaultCommand: 'serve',
  examples: examples(
    'saas-backend init my-app',
    'saas-backend --port 8000',
    'saas-backend doctor',
    'saas-backend user create ada@example.com --name "Ada Lovelace" --verified',
    'saas-backend user grant ada@example.com pro --until 2030-01-31',
    'saas-backend billing resync --dry-run',
    'saas-backend backup "/backups/$(date +%F).db"',
  ),
  storeVariable: 'DATABASE_URI',
  examine: async (sendMailTo) => (await import('../src/saas/doctor.js')).examineSaas(sendMailTo),
  loadCollections: async () => (await import('../src/saas/collections.js')).declareSaasCollections,
  createServer: async (options) => (await import('../src/saas/server.js')).createServer(options),
  introduce({ fastify, configuration: { values, generated } }, url) {
    const { adminUsername, adminPassword, accountPages } = values;
    // The cookies of sessions belong to the public URL, which is localhost in development.
    const origin = values.publicUrl ?? `http://localhost:${new URL(url).port}`;
    const isGenerated = generated.names.includes('ADMIN_PASSWORD');
    const account = `-H 'content-type: application/json' -d '{"email":"ada@example.com","password":"a sentence is fine"}'`;
    return {
      addresses: {
        API: `${url}/api`,
        ...apiReference(fastify, url, '/api'),
        ...(accountPages && { 'Account pages': `${origin}/account` }),
        Admin: `${url}/admin`,
        Health: `${url}/health`,
      },
      credentials: isGenerated ? { 'Admin user': adminUsername, 'Admin password': adminPassword ?? '' } : {},
      commands: [
        `curl ${url}/api/auth/register ${account}`,
        `curl ${url}/api/auth/login ${account}`,
        // Without the password, curl prompts for it.
        `curl -u '${adminUsername}${isGenerated ? `:${adminPassword}` : ''}' ${url}/admin/api/settings`,
      ],
    };
  },
});

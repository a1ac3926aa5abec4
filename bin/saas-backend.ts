#!/usr/bin/env node
import { createServer } from '../src/saas-server.js';
import { run } from './cli.js';

const help = `Accounts, sessions, payment events and an admin area over HTTP.

Usage
  saas-backend [serve] [options]
  saas-backend backup <file> [--json]

backup copies the store that DATABASE_URI names into a new file, also while the program runs.

Options
  -p, --port <number>      port to listen at, 0 for any free one (PORT, else 3000)
      --host <address>     address to listen at (HOST, else 127.0.0.1, in production 0.0.0.0)
      --log-level <level>  trace, debug, info, warn, error, fatal or silent (LOG_LEVEL, else info)
      --json               what a backup was, as one line of JSON
  -h, --help
  -v, --version

Examples
  saas-backend
  saas-backend --port 8000
  DATABASE_URI=sqlite:/var/lib/app/users.db saas-backend serve --host 0.0.0.0
  saas-backend backup /backups/saas-backend-$(date +%F).db

Environment variables configure the rest, also from a .env file in the current folder;
the .env.example of this package lists them. With NODE_ENV=production nothing is made up.`;

await run({
  name: 'saas-backend',
  help,
  servesByDefault: true,
  storeVariable: 'DATABASE_URI',
  createServer,
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

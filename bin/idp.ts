#!/usr/bin/env node
import { createIdentityServer } from '../src/idp-server.js';
import { run } from './cli.js';

const help = `An OpenID Connect provider for people and agents.

Usage
  idp serve [options]
  idp backup <file> [--json]

backup copies the store that IDP_DATABASE_URI names into a new file, also while the program runs.

Options
  -p, --port <number>      port to listen at, 0 for any free one (IDP_PORT, PORT, else 8080)
      --host <address>     address to listen at (IDP_HOST, else 127.0.0.1, in production 0.0.0.0)
      --log-level <level>  trace, debug, info, warn, error, fatal or silent (LOG_LEVEL, else info)
      --json               what a backup was, as one line of JSON
  -h, --help
  -v, --version

Examples
  idp serve
  idp serve -port 8080
  IDP_PUBLIC_URL=https://id.example IDP_DISABLE_SIGNUP=1 idp serve
  idp backup /backups/idp-$(date +%F).db

Environment variables configure the rest, also from a .env file in the current folder;
the .env.example of this package lists them. With NODE_ENV=production nothing is made up.`;

await run({
  name: 'idp',
  help,
  servesByDefault: false,
  storeVariable: 'IDP_DATABASE_URI',
  createServer: createIdentityServer,
  introduce({ fastify, configuration: { values, generated } }, url) {
    const isGenerated = generated.names.includes('IDP_ADMIN_TOKEN');
    const post = `-H 'authorization: Bearer ${isGenerated ? values.adminToken : '<IDP_ADMIN_TOKEN>'}' -H 'content-type: application/json' -d`;
    return {
      addresses: { Issuer: fastify.idp.issuer(), Discovery: `${url}/.well-known/openid-configuration` },
      credentials: isGenerated ? { 'Admin token': values.adminToken ?? '' } : {},
      commands: [
        `curl ${url}/.well-known/jwks.json`,
        `curl ${url}/v1/agents ${post} '{"handle":"scout@agents.example","name":"Scout"}'`,
        `curl ${url}/v1/clients ${post} '{"name":"My app","redirect_uris":["http://localhost:3000/callback"]}'`,
      ],
    };
  },
});

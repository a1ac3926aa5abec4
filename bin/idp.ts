#!/usr/bin/env node
import { run } from './cli.js';

await run({
  name: 'idp',
  summary: 'An OpenID Connect provider for people and agents.',
  environment: `Environment variables configure the rest, also from a .env file in the current folder;
the .env.example of this package lists them. With NODE_ENV=production nothing is made up.`,
  groups: {
    serve: () => import('./commands/serve.js'),
    backup: () => import('./commands/backup.js'),
    client: () => import('./commands/client.js'),
    agent: () => import('./commands/agent.js'),
    invite: () => import('./commands/invite.js'),
    principal: () => import('./commands/principal.js'),
    login: () => import('./commands/login.js'),
    doctor: () => import('./commands/doctor.js'),
  },
  storeVariable: 'IDP_DATABASE_URI',
  examine: async () => (await import('../src/idp/doctor.js')).examineIdp(),
  createServer: async (flags) => (await import('../src/idp/server.js')).createIdentityServer(flags),
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

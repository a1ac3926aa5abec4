#!/usr/bin/env node
import { examples } from './command.js';
import { apiReference, run } from './program.js';

await run({
  name: 'idp',
  summary: 'An OpenID Connect provider for people and agents.',
  commands: {
    serve: { summary: 'Start the server', load: () => import('./commands/serve.js') },
    backup: { summary: 'Copy the store into a new file', load: () => import('./commands/backup.js') },
    store: { summary: 'Move to another database: copy, sql', load: () => import('./commands/store.js') },
    audit: { summary: 'Read the audit: list, purge', load: () => import('./commands/audit.js') },
    client: {
      summary: 'Manage applications: create, list, update, rotate, delete',
      load: () => import('./commands/client.js'),
    },
    'registration-token': {
      summary: 'Manage tokens with which applications register themselves: create, list, revoke',
      load: () => import('./commands/registration-token.js'),
    },
    resource: {
      summary: 'Manage APIs: add, list, update, rotate, remove',
      load: () => import('./commands/resource.js'),
    },
    delegation: {
      summary: 'Manage which agents act for which people: list, revoke',
      load: () => import('./commands/delegation.js'),
    },
    'trusted-issuer': {
      summary:
        'Manage providers whose identity assertions are accepted: set, list, remove, link, unlink, links',
      load: () => import('./commands/trusted-issuer.js'),
    },
    audience: {
      summary: 'Manage servers for which identity assertions are issued: set, list, remove',
      load: () => import('./commands/audience.js'),
    },
    agent: {
      summary: 'Manage agents: mint, rotate, key',
      load: () => import('./commands/agent.js'),
    },
    invite: {
      summary: 'Print a link with which a person creates an account',
      load: () => import('./commands/invite.js'),
    },
    principal: {
      summary: 'Manage principals: list, disable, enable, reset, remove-factor, remove-passkeys',
      load: () => import('./commands/principal.js'),
    },
    operator: {
      summary: 'Manage operators: grant, revoke, invite, list',
      load: () => import('./commands/operator.js'),
    },
    login: {
      summary: 'Sign in without a browser and print a token',
      load: () => import('./commands/login.js'),
    },
    token: {
      summary: 'Get tokens with tokens: exchange',
      load: () => import('./commands/token.js'),
    },
    doctor: {
      summary: 'Check the configuration, the store and the port',
      load: () => import('./commands/doctor.js'),
    },
  },
  examples: examples(
    'idp serve --port 8080',
    'idp client create https://app.example.com/callback --name "My app"',
    'idp agent mint scout@agents.example --name Scout',
    'idp invite ada@example.com',
    'idp principal disable scout@agents.example',
    'idp operator grant ada@example.com',
    'idp backup "/backups/$(date +%F).db"',
  ),
  storeVariable: 'IDP_DATABASE_URI',
  examine: async () => (await import('../src/idp/doctor.js')).examineIdp(),
  loadCollections: async () => (await import('../src/idp/collections.js')).declareIdpCollections,
  createServer: async (options) => (await import('../src/idp/server.js')).createIdentityServer(options),
  async createSetupLink({ fastify }) {
    const link = await fastify.idp.createFirstOperatorLink();
    return (
      link && {
        purpose: 'Create the first operator of the console with this link, once, within an hour:',
        url: link.url,
      }
    );
  },
  introduce({ fastify, configuration: { values, generated } }, url) {
    const isGenerated = generated.names.includes('IDP_ADMIN_TOKEN');
    const post = `-H 'authorization: Bearer ${isGenerated ? values.adminToken : '<IDP_ADMIN_TOKEN>'}' -H 'content-type: application/json' -d`;
    return {
      addresses: {
        Issuer: fastify.idp.issuer(),
        Discovery: `${url}/.well-known/openid-configuration`,
        ...apiReference(fastify, url, ''),
      },
      credentials: isGenerated ? { 'Admin token': values.adminToken ?? '' } : {},
      commands: [
        `curl ${url}/.well-known/jwks.json`,
        `curl ${url}/v1/agents ${post} '{"handle":"scout@agents.example","name":"Scout"}'`,
        `curl ${url}/v1/clients ${post} '{"name":"My app","redirect_uris":["http://localhost:3000/callback"]}'`,
      ],
    };
  },
});

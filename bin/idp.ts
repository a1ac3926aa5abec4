#!/usr/bin/env node
import { examples } from './command.js';
import { apiReference, run } from './program.js';

await run({
  name: 'idp',
  summary: 'An OpenID Connect provider for people and agents.',
  commands: {
    serve: 'Start the server',
    backup: 'Copy the store into a new file',
    store: 'Move to another database: copy, sql',
    audit: 'Read the audit: list, purge',
    client: 'Manage applications: create, list, update, rotate, delete',
    'registration-token': 'Manage tokens with which applications register themselves: create, list, revoke',
    resource: 'Manage APIs: add, list, update, rotate, remove',
    delegation: 'Manage which agents act for which people: list, revoke',
    'trusted-issuer':
      'Manage providers whose identity assertions are accepted: set, list, remove, link, unlink, links',
    audience: 'Manage servers for which identity assertions are issued: set, list, remove',
    group: 'Manage groups of people and agents: add, remove, list, member',
    agent:
      'Manage agents and their permissions: mint, list, update, allow, disallow, permissions, rotate, key',
    invite: 'Invite people to create accounts: create (default), list, withdraw',
    principal:
      'Manage principals: list, update, disable, enable, delete, reset, remove-factor, remove-passkeys',
    operator: 'Manage operators: grant, revoke, invite, list',
    login: 'Sign in without a browser and print a token',
    token: 'Get tokens with tokens: exchange',
    doctor: 'Check the configuration, the store and the port',
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
  examine: async (sendMailTo) => (await import('../src/idp/doctor.js')).examineIdp(sendMailTo),
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

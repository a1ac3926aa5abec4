import { access, originOf, type Scope } from '../kernel/http.js';
import { toTimestamp } from '../kernel/schemas.js';
import {
  AccountBody,
  AgentAnswer,
  AgentBody,
  ClientAnswer,
  ClientBody,
  ClientList,
  ClientQuery,
  KINDS,
  PrincipalAnswer,
} from './schemas.js';
import type { Clients, Principals } from './service.js';
import type { ClientDocument, PrincipalDocument } from './store.js';

export interface ProvisioningPluginOptions {
  principals: Principals;
  clients: Clients;
}

/** How principals and clients come into being. */
export async function provisioningPlugin(
  scope: Scope,
  { principals, clients }: ProvisioningPluginOptions,
): Promise<void> {
  scope.post(
    '/v1/accounts',
    { config: access('signup'), schema: { body: AccountBody, response: { 201: PrincipalAnswer } } },
    async (request, reply) => {
      const principal = await principals.register(request.body, originOf(request));
      return reply.code(201).send(principalView(principal));
    },
  );

  scope.post(
    '/v1/agents',
    { config: access('admin'), schema: { body: AgentBody, response: { 201: AgentAnswer } } },
    async (request, reply) => {
      const { agent, password } = await principals.mintAgent(request.body, originOf(request));
      return reply.code(201).send({ ...principalView(agent), password });
    },
  );

  scope.post(
    '/v1/clients',
    { config: access('admin'), schema: { body: ClientBody, response: { 201: ClientAnswer } } },
    async (request, reply) => {
      const { body } = request;
      const input = {
        name: body.client_name ?? body.name ?? '',
        redirectUris: [body.redirect_uris].flat(),
        postLogoutRedirectUris: [body.post_logout_redirect_uris ?? []].flat(),
        isPublic: body.public ?? false,
        principalKinds: body.principal_kinds ?? [...KINDS],
      };
      const { client, secret } = await clients.create(input, originOf(request));
      return reply
        .code(201)
        .send({ ...clientView(client), ...(secret !== null && { client_secret: secret }) });
    },
  );

  scope.get(
    '/v1/clients',
    { config: access('admin'), schema: { querystring: ClientQuery, response: { 200: ClientList } } },
    async ({ query }) => {
      const { items, next } = await clients.list(query.after);
      return { clients: items.map(clientView), next };
    },
  );
}

function principalView({ id, handle, kind, name, createdAt }: PrincipalDocument) {
  return { sub: id, handle, kind, name: name ?? '', created_at: toTimestamp(createdAt) };
}

function clientView(client: ClientDocument) {
  return {
    client_id: client.id,
    client_name: client.name,
    redirect_uris: client.redirectUris,
    post_logout_redirect_uris: client.postLogoutRedirectUris,
    public: client.secretHash === undefined,
    principal_kinds: client.principalKinds,
    created_at: toTimestamp(client.createdAt),
  };
}

import type { FastifyRequest } from 'fastify';
import type { TObject } from 'typebox';
import { parseBasic } from '../../core/http/authorization.js';
import { isBrowser } from '../../core/http/browser.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { readTime, toTimestamp } from '../../core/http/schemas.js';
import { type AppError, type ErrorOptions, httpErrors } from '../../core/kernel/errors.js';
import { provisioningErrors } from './errors.js';
import { guidePlugin } from './guide.js';
import { InviteAnswer, InviteBody, InviteList, InviteQuery, inviteView } from './invite-schemas.js';
import { linkPagePlugin } from './link-page.js';
import type { Principals } from './principals.js';
import { recoveryPagesPlugin } from './recovery-pages.js';
import {
  AccountBody,
  AgentAnswer,
  AgentBody,
  ClientAnswer,
  ClientBody,
  ClientList,
  ClientQuery,
  clientView,
  MetadataBody,
  operatorView,
  PrincipalAnswer,
  PrincipalList,
  PrincipalParameters,
  PrincipalQuery,
  PrincipalView,
  principalPage,
  principalView,
  RotationAnswer,
} from './schemas.js';
import type { RouteServices } from './services.js';
import { KINDS, type PrincipalDocument } from './store.js';

/** Creates principals and clients, and lets the operator manage them. */
export async function provisioningPlugin(fastify: FastifyTypebox, services: RouteServices): Promise<void> {
  await fastify.register(creationPlugin, services);
  await fastify.register(operatorPlugin, services);
  await fastify.register(linkPagePlugin, services);
  await fastify.register(recoveryPagesPlugin, services);
  await fastify.register(guidePlugin, services);
}

async function creationPlugin(
  fastify: FastifyTypebox,
  { principals, links, clients, adminVouchesForAgents }: RouteServices,
): Promise<void> {
  fastify.post(
    '/v1/accounts',
    { config: access('signup'), schema: { body: AccountBody, response: { 201: PrincipalAnswer } } },
    async (request, reply) => {
      refuseUnknownFields(request.body, AccountBody);
      const principal = await principals.register(request.body, requestSource(request));
      return reply.code(201).send(principalView(principal));
    },
  );

  fastify.post(
    '/v1/agents',
    { config: access('admin'), schema: { body: AgentBody, response: { 201: AgentAnswer } } },
    async (request, reply) => {
      refuseUnknownFields(request.body, AgentBody);
      const { expires_at: expires, ...input } = request.body;
      const { agent, password } = await principals.mintAgent(
        { ...input, expiresAt: expires === undefined ? undefined : readTime(expires) },
        requestSource(request),
        adminVouchesForAgents,
      );
      return reply.code(201).send({ ...principalView(agent), password });
    },
  );

  fastify.post(
    '/v1/agents/self/rotate',
    { config: access('agent'), schema: { response: { 200: RotationAnswer } } },
    async (request) => {
      const agent = await authenticateAgent(request, principals);
      // Another rotation came first, so the presented password is no longer valid.
      const password = await principals.rotate(agent, requestSource(request));
      if (password === null) throw wrongCredentials();
      return { sub: agent.id, handle: agent.handle, password };
    },
  );

  fastify.post(
    '/v1/invites',
    { config: access('inviter'), schema: { body: InviteBody, response: { 201: InviteAnswer } } },
    async (request, reply) => {
      refuseUnknownFields(request.body, InviteBody);
      const { send, ...input } = request.body;
      const delivery = send ? 'required' : 'none';
      const invitation = await links.invite({ ...input, delivery }, requestSource(request));
      const { principal, url, expiresAt, days, sentTo } = invitation;
      return reply.code(201).send({
        handle: principal.handle,
        invite_url: url,
        expires_at: toTimestamp(expiresAt),
        days,
        ...(sentTo !== undefined && { sent_to: sentTo }),
      });
    },
  );

  fastify.post(
    '/v1/clients',
    { config: access('admin'), schema: { body: ClientBody, response: { 201: ClientAnswer } } },
    async (request, reply) => {
      const { body } = request;
      refuseUnknownFields(body, ClientBody, provisioningErrors.invalid_client_metadata);
      const input = {
        name: body.client_name ?? body.name ?? '',
        redirectUris: [body.redirect_uris].flat(),
        postLogoutRedirectUris: [body.post_logout_redirect_uris ?? []].flat(),
        isPublic: body.public ?? false,
        principalKinds: body.principal_kinds ?? [...KINDS],
        admittedGroups: body.admitted_groups,
        groupsClaim: body.groups_claim,
        claims: body.claims,
        strict: body.strict,
        logoUri: body.logo_uri,
        idTokenAlg: body.id_token_signed_response_alg,
        backchannelLogoutUri: body.backchannel_logout_uri,
        jwks: body.jwks,
        jwksUri: body.jwks_uri,
      };
      const { client, secret } = await clients.create(input, requestSource(request));
      return reply
        .code(201)
        .send({ ...clientView(client), ...(secret !== null && { client_secret: secret }) });
    },
  );

  fastify.get(
    '/v1/clients',
    { config: access('admin'), schema: { querystring: ClientQuery, response: { 200: ClientList } } },
    async ({ query }) => {
      const { items, next } = await clients.list(query.after);
      return { clients: items.map(clientView), next };
    },
  );
}

/** Limits of what an error repeats. */
const MAX_NAME_LENGTH = 64;
const MAX_NAMES = 20;

/** @throws VALIDATION_ERROR, or `error`, naming every field that is not supported (RFC 7591 §3.2.2) */
function refuseUnknownFields(
  body: object,
  { properties }: TObject,
  error: (options: ErrorOptions) => AppError = httpErrors.VALIDATION_ERROR,
): void {
  const known = Object.keys(properties);
  const unknown = Object.keys(body)
    .filter((name) => !known.includes(name))
    .map((name) => name.slice(0, MAX_NAME_LENGTH))
    .slice(0, MAX_NAMES);
  if (unknown.length === 0) return;
  throw error({
    message: `Fields that are not supported: ${unknown.join(', ')}. Supported: ${known.join(', ')}.`,
    details: unknown.map((path) => ({ path, message: 'is not supported' })),
  });
}

/** The administrator can see and disable principals, but never act on their behalf. */
async function operatorPlugin(
  fastify: FastifyTypebox,
  { directory, links, clock }: RouteServices,
): Promise<void> {
  const config = access('admin');

  fastify.get(
    '/v1/invites',
    { config, schema: { querystring: InviteQuery, response: { 200: InviteList } } },
    async ({ query }) => {
      const filter = { state: 'invited', hasExpiredLink: query.expired === 'true' } as const;
      const { items, next } = await directory.list({ ...filter, after: query.after });
      return { invites: items.map((item) => inviteView(item, clock.now())), next };
    },
  );

  fastify.delete(
    '/v1/invites/:sub',
    { config: access('inviter'), schema: { params: PrincipalParameters } },
    async (request, reply) => {
      const found = await directory.get(request.params.sub);
      if (!found || !(await links.withdraw(found.id, requestSource(request)))) throw httpErrors.NOT_FOUND();
      return reply.code(204).send();
    },
  );

  const one = { config, schema: { params: PrincipalParameters, response: { 200: PrincipalView } } };

  fastify.get(
    '/v1/principals',
    { config, schema: { querystring: PrincipalQuery, response: { 200: PrincipalList } } },
    async ({ query }) => principalPage(await directory.list(query)),
  );

  fastify.get('/v1/principals/:sub', one, async ({ params }) =>
    viewOrNotFound(await directory.get(params.sub)),
  );

  fastify.post('/v1/principals/:sub/disable', one, async (request) =>
    viewOrNotFound(await directory.disable(request.params.sub, requestSource(request))),
  );

  fastify.post('/v1/principals/:sub/enable', one, async (request) =>
    viewOrNotFound(await directory.enable(request.params.sub, requestSource(request))),
  );

  // What applications trust, as groups and verified addresses.
  fastify.patch(
    '/v1/principals/:sub',
    {
      config: access('inviter'),
      schema: { params: PrincipalParameters, body: MetadataBody, response: { 200: PrincipalView } },
    },
    async (request) => {
      const { params, body } = request;
      return viewOrNotFound(
        await directory.changeMetadata(params.sub, body.metadata, requestSource(request)),
      );
    },
  );

  fastify.delete(
    '/v1/agents/:sub',
    { config, schema: { params: PrincipalParameters } },
    async (request, reply) => {
      if (!(await directory.deleteAgent(request.params.sub, requestSource(request))))
        throw httpErrors.NOT_FOUND();
      return reply.code(204).send();
    },
  );
}

function viewOrNotFound(principal: PrincipalDocument | null) {
  if (!principal) throw httpErrors.NOT_FOUND();
  return operatorView(principal);
}

const wrongCredentials = () =>
  provisioningErrors.invalid_credentials({
    headers: { 'www-authenticate': 'Basic realm="idp", charset="UTF-8"' },
  });

/** The agent of a request with HTTP Basic. @throws browser_basic, invalid_credentials, RATE_LIMITED, OVERLOADED */
async function authenticateAgent(
  request: FastifyRequest,
  principals: Principals,
): Promise<PrincipalDocument> {
  const { headers } = request;
  if (isBrowser(headers)) throw provisioningErrors.browser_basic();
  const credentials = parseBasic(headers.authorization ?? '');
  const agent =
    credentials &&
    (await principals.authenticate(
      credentials.username,
      credentials.password,
      requestSource(request),
      ({ kind }) => kind === 'agent',
    ));
  if (!agent) throw wrongCredentials();
  return agent;
}

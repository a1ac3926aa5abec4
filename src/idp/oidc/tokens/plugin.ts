import type { FastifyRequest } from 'fastify';
import { parseBearer, parseDpop } from '../../../core/http/authorization.js';
import { DPOP_ALGORITHMS } from '../../../core/http/dpop.js';
import { access, type FastifyTypebox } from '../../../core/http/routes.js';
import { authenticate, authenticateClient, findClient, invalidClient } from '../client-auth.js';
import { type Client, isAgent, isPublicClient } from '../directory.js';
import { oidcErrors } from '../errors.js';
import { AnyForm, IntrospectionResponse, TokenResponseBody } from '../schemas.js';
import type { OidcServices } from '../services.js';
import { authenticateClientOrAgent } from './agents.js';
import type { GrantType } from './grant-types.js';
import { introspectForResource, introspectToken, userinfo } from './introspection.js';
import { requireProof } from './key-binding.js';
import { provenBy, readCredentials, readProof, readResources } from './request.js';
import { revokeToken } from './revocation.js';

const TOKEN_LIMIT_BYTES = 64 * 1024;

// An application redeems the codes of all its users from one address, so these requests are not limited.
const CONFIG = access('client', { unmetered: true });

/** The token and revocation endpoints, for servers and pages. */
export async function tokensPlugin(fastify: FastifyTypebox, services: OidcServices): Promise<void> {
  const { directory, grantTypes } = services;

  fastify.post(
    '/token',
    {
      config: CONFIG,
      bodyLimit: TOKEN_LIMIT_BYTES,
      schema: { body: AnyForm, response: { 200: TokenResponseBody } },
    },
    async (request, reply) => {
      const credentials = readCredentials(request);
      const { body: fields, ip } = credentials;
      const grantType = await grantTypes.find(fields);
      // Read at the same time; the grant is not used unless its client has authenticated.
      const [client, grant = null] = await Promise.all([
        (grantType?.everyAgent ? authenticateClientOrAgent : authenticateClient)(credentials, services),
        grantType?.findGrant?.(fields),
      ]);
      if (!fields['grant_type']) throw oidcErrors.invalid_request({ message: 'grant_type is missing.' });
      if (!grantType) throw oidcErrors.unsupported_grant_type();
      const respond = handlerOf(grantType, client, services);
      reply.header('pragma', 'no-cache');
      const resources = readResources(request.body);
      const prove = readProof(request, reply, '/token', services);
      requireProof(client, prove);
      const response = await respond({ fields, resources, prove, ip }, grant);
      await directory.recordUse(client);
      return response;
    },
  );

  fastify.post('/revoke', { config: CONFIG, schema: { body: AnyForm } }, async (request, reply) => {
    const credentials = readCredentials(request);
    const client = await authenticateClientOrAgent(credentials, services);
    await revokeToken(client, tokenOf(credentials.body), credentials.ip, services);
    return reply.send();
  });
}

/** What answers the request of this client. @throws unauthorized_client */
function handlerOf({ agents, clients, needsSigningKey }: GrantType, client: Client, { keys }: OidcServices) {
  const respond = isAgent(client) ? agents?.bind(null, client) : clients?.bind(null, client);
  if (!respond)
    throw oidcErrors.unauthorized_client({
      message: client.agent
        ? 'An agent cannot use this grant type.'
        : 'Only agents may use this grant type, with their sub as client_id.',
    });
  if (needsSigningKey && !keys.algorithms.includes(client.idTokenAlg ?? 'EdDSA'))
    throw oidcErrors.unauthorized_client();
  return respond;
}

/** The claims for the bearer of an access token, for servers and pages. */
export async function userinfoPlugin(fastify: FastifyTypebox, services: OidcServices): Promise<void> {
  fastify.route({
    method: ['GET', 'POST'],
    url: '/userinfo',
    config: access('bearer', { unmetered: true }),
    handler: async (request) => {
      const bound = parseDpop(request.headers.authorization);
      const token = bound ?? bearerOf(request);
      if (token === undefined) {
        throw oidcErrors.invalid_token({ headers: challenge('Bearer') });
      }
      const prove = bound === undefined ? undefined : services.proofs.prover(provenBy(request, '/userinfo'));
      return userinfo(token, prove, services).catch((error: unknown) => {
        const { code, message } = error as { code?: unknown; message?: string };
        if (code !== 'invalid_token' && code !== 'invalid_dpop_proof') throw error;
        const headers = challenge(prove ? 'DPoP' : 'Bearer', code);
        // With the status of the challenge (RFC 9449 §7.1).
        throw oidcErrors.invalid_token({ headers, ...(message !== undefined && { message }) });
      });
    },
  });
}

/** Token introspection, which only servers can call: pages have no client secret. */
export async function introspectionPlugin(fastify: FastifyTypebox, services: OidcServices): Promise<void> {
  const { directory, resources } = services;
  fastify.post(
    '/introspect',
    { config: CONFIG, schema: { body: AnyForm, response: { 200: IntrospectionResponse } } },
    async (request) => {
      const credentials = readCredentials(request);
      const { body: fields, ip } = credentials;
      // Both are found by the format of their identifiers, so only one lookup reads the store.
      const find = async (id: string) => (await findClient(id, ip, directory)) ?? resources.findServer(id);
      const caller = await authenticate(credentials, find, services);
      // A client_id alone is not authentication (RFC 7662 §2.1).
      if (isPublicClient(caller)) throw invalidClient();
      const token = tokenOf(fields);
      return 'identifier' in caller
        ? introspectForResource(caller, token, ip, services)
        : introspectToken(caller, token, services);
    },
  );
}

/**
 * The `token` parameter. `token_type_hint` is ignored, because the prefix of a token shows its type.
 * @throws invalid_request
 */
function tokenOf({ token }: Record<string, string>): string {
  if (!token) throw oidcErrors.invalid_request({ message: 'token is missing.' });
  return token;
}

/** The access token in the header or in the form (RFC 6750 §2), never in the query. @throws invalid_request when it is repeated */
function bearerOf({ headers, body }: FastifyRequest): string | undefined {
  const inHeader = parseBearer(headers.authorization);
  const inForm = (body as { access_token?: unknown } | undefined)?.access_token || undefined;
  if ((inHeader !== undefined && inForm !== undefined) || Array.isArray(inForm)) {
    throw oidcErrors.invalid_request({
      message: 'The access token was sent more than once. Send it either in the header or in the body.',
      headers: challenge('Bearer', 'invalid_request'),
    });
  }
  return inHeader ?? (typeof inForm === 'string' ? inForm : undefined);
}

/** The challenge of a protected resource (RFC 6750 §3, RFC 9449 §7.1). */
function challenge(scheme: 'Bearer' | 'DPoP', error?: string): Record<string, string> {
  const algorithms = scheme === 'DPoP' ? `, algs="${DPOP_ALGORITHMS.join(' ')}"` : '';
  const named = error === undefined ? '' : `, error="${error}"`;
  return { 'www-authenticate': `${scheme} realm="idp"${named}${algorithms}` };
}

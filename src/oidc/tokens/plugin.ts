import type { FastifyRequest } from 'fastify';
import { parseBearer } from '../../http/authorization.js';
import { access, originOf, type Scope } from '../../http/scope.js';
import {
  authenticate,
  authenticateClient,
  type ClientAuthDependencies,
  findClient,
  hasAssertion,
  invalidClient,
} from '../client-auth.js';
import type { DeviceModule } from '../device/module.js';
import { type Client, type Directory, isPublicClient } from '../directory.js';
import { oidcErrors } from '../errors.js';
import type { Keys } from '../keys.js';
import type { ResourceServer, Resources } from '../resources.js';
import { AnyForm, IntrospectionResponse, TokenResponseBody } from '../schemas.js';
import type { TokenResponse } from './issuance.js';
import { DEVICE_GRANT, readRequest, readResources, readSingleValues } from './request.js';
import type { TokenService } from './service.js';

export interface TokensPluginOptions extends ClientAuthDependencies {
  tokens: TokenService;
  directory: Directory;
  resources: Resources;
  keys: Keys;
  /** Absent if the device flow is not enabled. */
  device?: Pick<DeviceModule, 'poll'> | undefined;
}

const TOKEN_LIMIT_BYTES = 64 * 1024;

/** The token, revocation and userinfo endpoints, for servers and pages. */
export async function tokensPlugin(scope: Scope, options: TokensPluginOptions): Promise<void> {
  const { tokens } = options;
  // An application redeems the codes of all its users from one address, so these requests are not limited.
  const config = access('client', { unmetered: true });

  scope.post(
    '/token',
    { config, bodyLimit: TOKEN_LIMIT_BYTES, schema: { body: AnyForm, response: { 200: TokenResponseBody } } },
    async (request, reply) => {
      const { client, fields } = await readRequest(request, options);
      const grantType = fields['grant_type'];
      if (!grantType) throw oidcErrors.invalid_request({ message: 'grant_type is missing.' });
      const handleGrant =
        GRANT_HANDLERS.get(grantType) ??
        (grantType === DEVICE_GRANT ? pollDevice(options.device) : undefined);
      if (!handleGrant) throw oidcErrors.unsupported_grant_type();
      // Before the code is used, which then remains valid.
      if (client.idTokenAlg && !options.keys.algorithms.includes(client.idTokenAlg))
        throw oidcErrors.unauthorized_client();
      reply.header('pragma', 'no-cache');
      const resources = readResources(request.body);
      const response = await handleGrant(tokens, client, { ...fields, resources }, originOf(request).ip);
      await options.directory.recordUse(client);
      return response;
    },
  );

  scope.post('/revoke', { config, schema: { body: AnyForm } }, async (request, reply) => {
    const { client, fields } = await readRequest(request, options);
    await tokens.revoke(client, tokenOf(fields), originOf(request).ip);
    return reply.send();
  });

  scope.route({
    method: ['GET', 'POST'],
    url: '/userinfo',
    config: access('bearer', { unmetered: true }),
    handler: async (request) => {
      const token = bearerOf(request);
      if (token === undefined) {
        throw oidcErrors.invalid_token({ headers: challenge() });
      }
      return tokens.userinfo(token).catch((error: unknown) => {
        throw (error as { code?: unknown }).code === 'invalid_token'
          ? oidcErrors.invalid_token({ headers: challenge('invalid_token') })
          : error;
      });
    },
  });
}

/** Token introspection, which only servers can call: pages have no client secret. */
export async function introspectionPlugin(scope: Scope, options: TokensPluginOptions): Promise<void> {
  scope.post(
    '/introspect',
    {
      config: access('client', { unmetered: true }),
      schema: { body: AnyForm, response: { 200: IntrospectionResponse } },
    },
    async (request) => {
      const { directory, resources, throttle, tokens } = options;
      const fields = readSingleValues(request.body);
      const { authorization } = request.headers;
      const { ip } = originOf(request);
      // Both are found by the format of their identifiers, so only one lookup reads the store.
      const findCaller = async (id: string): Promise<Client | ResourceServer | null> =>
        (await findClient(id, ip, directory)) ?? resources.findServer(id);
      const credentials = { authorization, body: fields, ip };
      const caller = hasAssertion(credentials)
        ? await authenticateClient(credentials, options)
        : await authenticate(credentials, findCaller, throttle);
      // A client_id alone is not authentication (RFC 7662 §2.1).
      if (isPublicClient(caller)) throw invalidClient();
      const token = tokenOf(fields);
      return 'identifier' in caller
        ? tokens.introspectForResource(caller, token)
        : tokens.introspect(caller, token);
    },
  );
}

type GrantHandler = (
  tokens: TokenService,
  client: Client,
  fields: TokenFields,
  ip: string,
) => Promise<TokenResponse>;

/** The fields of a request to /token. */
interface TokenFields {
  resources: readonly string[];
  code?: string;
  redirect_uri?: string;
  code_verifier?: string;
  refresh_token?: string;
  device_code?: string;
  scope?: string;
}

const GRANT_HANDLERS = new Map<string, GrantHandler>([
  [
    'authorization_code',
    (tokens, client, { code, redirect_uri: redirectUri, code_verifier: verifier, resources }, ip) =>
      tokens.redeem(client, { code, redirectUri, verifier, resources }, ip),
  ],
  [
    'refresh_token',
    (tokens, client, { refresh_token: token, scope, resources }, ip) =>
      tokens.refresh(client, { token, scope, resources }, ip),
  ],
]);

const pollDevice = (device: TokensPluginOptions['device']): GrantHandler | undefined =>
  device &&
  ((_tokens, client, { device_code: deviceCode, resources }) =>
    device.poll(client, { deviceCode, resources }));

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
      headers: challenge('invalid_request'),
    });
  }
  return inHeader ?? (typeof inForm === 'string' ? inForm : undefined);
}

/** The challenge of a protected resource (RFC 6750 §3). */
function challenge(error?: string): Record<string, string> {
  return { 'www-authenticate': `Bearer realm="idp"${error === undefined ? '' : `, error="${error}"`}` };
}

import type { FastifyReply, FastifyRequest } from 'fastify';
import { parseBearer, parseDpop } from '../../../core/http/authorization.js';
import { DPOP_ALGORITHMS } from '../../../core/http/dpop.js';
import { access, type Scope } from '../../../core/http/scope.js';
import {
  authenticate,
  authenticateClient,
  type ClientAuthDependencies,
  type ClientCredentials,
  findClient,
  invalidClient,
} from '../client-auth.js';
import type { DeviceModule } from '../device/module.js';
import { type Client, type Directory, isPublicClient } from '../directory.js';
import { oidcErrors } from '../errors.js';
import type { IdentityAssertions } from '../identity-assertions/module.js';
import { ASSERTION_TOKEN, JWT_BEARER } from '../identity-assertions/trust.js';
import type { Keys } from '../keys.js';
import type { Proofs, Prove } from '../proofs.js';
import type { ResourceServer, Resources } from '../resources.js';
import { AnyForm, IntrospectionResponse, TokenResponseBody } from '../schemas.js';
import type { GrantDocument } from '../store.js';
import { authenticateClientOrAgent, isAgent } from './agents.js';
import type { TokenResponse } from './issuance.js';
import {
  type ClientRequest,
  DEVICE_GRANT,
  provenBy,
  readCredentials,
  readProof,
  readResources,
  TOKEN_EXCHANGE,
} from './request.js';
import type { TokenService } from './service.js';

export interface TokensPluginOptions extends ClientAuthDependencies {
  tokens: TokenService;
  directory: Directory;
  resources: Resources;
  proofs(): Promise<Proofs>;
  keys: Keys;
  /** Absent if the device flow is not enabled. */
  device?: Pick<DeviceModule, 'poll'> | undefined;
  /** Absent if identity assertions are not enabled. */
  identityAssertions: IdentityAssertions | undefined;
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
      const credentials = readCredentials(request);
      const { body: fields, ip } = credentials;
      const grantType = fields['grant_type'];
      if (grantType === 'client_credentials' && (await options.resources.hasAny()))
        return issueToAgent(request, reply, credentials, options);
      const { issue } = options.identityAssertions ?? {};
      if (grantType === TOKEN_EXCHANGE && fields['requested_token_type'] === ASSERTION_TOKEN && issue)
        return issueAssertion(request, reply, credentials, { ...options, issue });
      if (grantType === TOKEN_EXCHANGE && (await options.resources.hasAny()))
        return exchange(request, reply, credentials, options);
      // Read at the same time; the grant is not used unless its client has authenticated.
      const [client, grant] = await Promise.all([
        authenticateClient(credentials, options),
        tokens.findByCode(grantType === 'authorization_code' ? fields['code'] : undefined),
      ]);
      if (!grantType) throw oidcErrors.invalid_request({ message: 'grant_type is missing.' });
      const handleGrant =
        GRANT_HANDLERS.get(grantType) ??
        (grantType === DEVICE_GRANT ? pollDevice(options.device) : undefined) ??
        (grantType === JWT_BEARER ? redeemAssertion(options.identityAssertions) : undefined);
      if (!handleGrant) throw oidcErrors.unsupported_grant_type();
      // Before the code is used, which then remains valid.
      if (client.idTokenAlg && !options.keys.algorithms.includes(client.idTokenAlg))
        throw oidcErrors.unauthorized_client();
      reply.header('pragma', 'no-cache');
      const resources = readResources(request.body);
      const prove = await readProof(request, reply, '/token', options);
      const response = await handleGrant(tokens, client, { ...fields, grant, resources, prove }, ip);
      await options.directory.recordUse(client);
      return response;
    },
  );

  scope.post('/revoke', { config, schema: { body: AnyForm } }, async (request, reply) => {
    const credentials = readCredentials(request);
    const client = await authenticateClientOrAgent(credentials, options);
    await tokens.revoke(client, tokenOf(credentials.body), credentials.ip);
    return reply.send();
  });

  scope.route({
    method: ['GET', 'POST'],
    url: '/userinfo',
    config: access('bearer', { unmetered: true }),
    handler: async (request) => {
      const bound = parseDpop(request.headers.authorization);
      const token = bound ?? bearerOf(request);
      if (token === undefined) {
        throw oidcErrors.invalid_token({ headers: challenge('Bearer') });
      }
      const prove =
        bound === undefined ? undefined : (await options.proofs()).prover(provenBy(request, '/userinfo'));
      return tokens.userinfo(token, prove).catch((error: unknown) => {
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
export async function introspectionPlugin(scope: Scope, options: TokensPluginOptions): Promise<void> {
  scope.post(
    '/introspect',
    {
      config: access('client', { unmetered: true }),
      schema: { body: AnyForm, response: { 200: IntrospectionResponse } },
    },
    async (request) => {
      const { directory, resources, throttle, assertions, tokens } = options;
      const credentials = readCredentials(request);
      const { body: fields, ip } = credentials;
      // Both are found by the format of their identifiers, so only one lookup reads the store.
      const find = async (id: string): Promise<Client | ResourceServer | null> =>
        (await findClient(id, ip, directory)) ?? resources.findServer(id);
      const caller = await authenticate(credentials, { find, throttle, assertions });
      // A client_id alone is not authentication (RFC 7662 §2.1).
      if (isPublicClient(caller)) throw invalidClient();
      const token = tokenOf(fields);
      return 'identifier' in caller
        ? tokens.introspectForResource(caller, token)
        : tokens.introspect(caller, token);
    },
  );
}

/** `client_credentials`, which only agents may use. */
async function issueToAgent(
  request: ClientRequest,
  reply: FastifyReply,
  credentials: ClientCredentials,
  options: TokensPluginOptions,
): Promise<TokenResponse> {
  const agent = await authenticateClientOrAgent(credentials, options);
  if (!isAgent(agent))
    throw oidcErrors.unauthorized_client({
      message: 'Only agents may use client_credentials, with their sub as client_id.',
    });
  reply.header('pragma', 'no-cache');
  const prove = await readProof(request, reply, '/token', options);
  const resources = readResources(request.body);
  return options.tokens.issueToAgent(
    agent,
    { resources, scope: credentials.body['scope'], prove },
    credentials.ip,
  );
}

/** Token exchange for the assertion that another authorization server accepts. */
async function issueAssertion(
  request: ClientRequest,
  reply: FastifyReply,
  credentials: ClientCredentials,
  options: TokensPluginOptions & { issue: NonNullable<IdentityAssertions['issue']> },
): Promise<TokenResponse> {
  const { body: fields, ip } = credentials;
  const client = await authenticateClient(credentials, options);
  reply.header('pragma', 'no-cache');
  const response = await options.issue(
    client,
    {
      subjectToken: fields['subject_token'],
      subjectTokenType: fields['subject_token_type'],
      actorToken: fields['actor_token'],
      audience: fields['audience'],
      scope: fields['scope'],
      resources: readResources(request.body),
      prove: await readProof(request, reply, '/token', options),
    },
    ip,
  );
  await options.directory.recordUse(client);
  return response;
}

/** Token exchange, by the client of a delegation or by an agent. */
async function exchange(
  request: ClientRequest,
  reply: FastifyReply,
  credentials: ClientCredentials,
  options: TokensPluginOptions,
): Promise<TokenResponse> {
  const { body: fields, ip } = credentials;
  const client = await authenticateClientOrAgent(credentials, options);
  reply.header('pragma', 'no-cache');
  const asked = {
    subjectToken: fields['subject_token'],
    subjectTokenType: fields['subject_token_type'],
    actorToken: fields['actor_token'],
    actorTokenType: fields['actor_token_type'],
    requestedTokenType: fields['requested_token_type'],
    audience: fields['audience'],
    scope: fields['scope'],
    resources: readResources(request.body),
    prove: await readProof(request, reply, '/token', options),
  };
  const response = await options.tokens.exchange(client, asked, ip);
  if (!isAgent(client)) await options.directory.recordUse(client);
  return response;
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
  /** The grant that the code names; the code is not verified yet. */
  grant: GrantDocument | null;
  redirect_uri?: string;
  code_verifier?: string;
  actor_token?: string;
  actor_token_type?: string;
  refresh_token?: string;
  device_code?: string;
  assertion?: string;
  scope?: string;
  prove?: Prove | undefined;
}

const GRANT_HANDLERS = new Map<string, GrantHandler>([
  [
    'authorization_code',
    (tokens, client, { code, grant, redirect_uri: redirectUri, code_verifier: verifier, ...fields }, ip) => {
      const { actor_token: actorToken, actor_token_type: actorTokenType, resources, prove } = fields;
      const redemption = { code, grant, redirectUri, verifier, resources, prove, actorToken, actorTokenType };
      return tokens.redeem(client, redemption, ip);
    },
  ],
  [
    'refresh_token',
    (tokens, client, { refresh_token: token, scope, resources, prove }, ip) =>
      tokens.refresh(client, { token, scope, resources, prove }, ip),
  ],
]);

const pollDevice = (device: TokensPluginOptions['device']): GrantHandler | undefined =>
  device &&
  ((_tokens, client, { device_code: deviceCode, resources, prove }) =>
    device.poll(client, { deviceCode, resources, prove }));

const redeemAssertion = (assertions: IdentityAssertions | undefined): GrantHandler | undefined => {
  const { redeem } = assertions ?? {};
  return (
    redeem &&
    ((_tokens, client, { assertion, scope, resources, prove }, ip) =>
      redeem(client, { assertion, scope, resources, prove }, ip))
  );
};

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

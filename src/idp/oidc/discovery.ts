import { DPOP_ALGORITHMS } from '../../core/http/dpop.js';
import { access, type FastifyTypebox } from '../../core/http/routes.js';
import { CLIENT_KEY_ALGORITHMS } from '../../core/kernel/public-jwk.js';
import { RESPONSE_MODES } from './authorize/rules.js';
import { ACR_VALUES, CLAIMS, SCOPES, SCOPES_WITHOUT_GROUPS } from './claims.js';
import { ASSERTION_PROFILE, ASSERTION_TOKEN } from './identity-assertions/trust.js';
import type { OidcServices } from './services.js';

/** Headers of documents that every origin may read and cache. A plain GET needs no preflight. */
export const PUBLIC_HEADERS = {
  'access-control-allow-origin': '*',
  'cache-control': 'public, max-age=300',
  'content-type': 'application/json; charset=utf-8',
  'cross-origin-resource-policy': 'cross-origin',
};
const WELL_KNOWN = '/.well-known/oauth-authorization-server';

/** The metadata and the JWK Set. */
export async function discoveryPlugin(fastify: FastifyTypebox, services: OidcServices): Promise<void> {
  publishMetadata(fastify, ['/.well-known/openid-configuration', WELL_KNOWN], services);
  const jwks = JSON.stringify(services.keys.jwks);
  publish(fastify, ['/.well-known/jwks.json', '/jwks'], () => jwks);
}

/**
 * The metadata of an issuer with a path: RFC 8414 §3.1 inserts the well-known part before it, outside of the prefix. MCP clients look
 * at the root of the host besides.
 */
export async function pathMetadataPlugin(fastify: FastifyTypebox, services: OidcServices): Promise<void> {
  const { acceptsMetadata, acceptsRegistration } = services.clientRegistration;
  const isRootFree = !fastify.hasRoute({ method: 'GET', url: WELL_KNOWN });
  const path = WELL_KNOWN + new URL(services.issuer()).pathname;
  const isForAll = isRootFree && (acceptsMetadata || acceptsRegistration);
  publishMetadata(fastify, isForAll ? [path, WELL_KNOWN] : [path], services);
}

/** What may change while the server runs. */
interface Advertised {
  issuer: string;
  resources: Awaited<ReturnType<OidcServices['resources']['all']>>;
  hasGroups: boolean;
  /** Whether an agent may be a workload. */
  hasRules: boolean;
}

function publishMetadata(fastify: FastifyTypebox, paths: string[], services: OidcServices): void {
  // In development, the issuer is known only once the server listens.
  let known: (Advertised & { text: string }) | undefined;
  const text = async () => {
    const issuer = services.issuer();
    const resources = await services.resources.all();
    // In an outage of the store, as last read.
    const hasGroups = await services.groups.inUse().catch(() => known?.hasGroups ?? false);
    const hasRules = await services.workloads.inUse().catch(() => known?.hasRules ?? false);
    const advertised = { issuer, resources, hasGroups, hasRules };
    const isSame = (name: keyof Advertised) => known?.[name] === advertised[name];
    if (!known || !(Object.keys(advertised) as (keyof Advertised)[]).every(isSame)) {
      known = { ...advertised, text: JSON.stringify(providerMetadata(advertised, services)) };
    }
    return known.text;
  };
  publish(fastify, paths, text);
}

/** Serves text that is serialized once, because these documents are requested often. */
function publish(fastify: FastifyTypebox, paths: string[], text: () => string | Promise<string>): void {
  for (const path of paths) {
    fastify.get(
      path,
      { config: access('public', { cors: false, unmetered: true }) },
      async (_request, reply) => reply.headers(PUBLIC_HEADERS).send(await text()),
    );
  }
}

/** Authentication methods of clients with a secret or a key. */
const METHODS = ['client_secret_basic', 'client_secret_post', 'private_key_jwt'] as const;

const PROMPTS = ['none', 'login', 'consent', 'select_account'];

/** Provider metadata (OIDC Discovery §3, RFC 8414 §2). */
function providerMetadata({ issuer, resources, hasGroups, hasRules }: Advertised, services: OidcServices) {
  const { locales, isSignUpOpen, secondFactor, passkeys, keys, device, approvals, grantTypes } = services;
  const types = resources.flatMap(({ approvals: declared = [] }) => declared.map(({ name }) => name));
  const { acceptsRegistration, acceptsMetadata } = services.clientRegistration;
  const { issuesAssertions, acceptsAssertions } = services;
  const hasResources = resources.length > 0;
  // Clients that nobody has registered choose from them.
  const scopes = acceptsRegistration || acceptsMetadata ? resources.flatMap(({ scopes }) => scopes) : [];
  return {
    issuer,
    authorization_endpoint: `${issuer}/authorize`,
    token_endpoint: `${issuer}/token`,
    pushed_authorization_request_endpoint: `${issuer}/par`,
    userinfo_endpoint: `${issuer}/userinfo`,
    revocation_endpoint: `${issuer}/revoke`,
    introspection_endpoint: `${issuer}/introspect`,
    ...(acceptsRegistration && { registration_endpoint: `${issuer}/register` }),
    ...(acceptsMetadata && { client_id_metadata_document_supported: true }),
    end_session_endpoint: `${issuer}/logout`,
    jwks_uri: `${issuer}/.well-known/jwks.json`,
    response_types_supported: ['code'],
    response_modes_supported: RESPONSE_MODES,
    // RFC 8628 §4
    ...(device && { device_authorization_endpoint: `${issuer}/device_authorization` }),
    ...(approvals &&
      hasResources && {
        backchannel_authentication_endpoint: `${issuer}/bc-authorize`,
        backchannel_token_delivery_modes_supported: ['poll', 'ping'],
        backchannel_user_code_parameter_supported: false,
      }),
    // RFC 9396 §10
    ...(approvals && types.length > 0 && { authorization_details_types_supported: [...new Set(types)] }),
    grant_types_supported: grantTypes.supported(hasResources, hasRules),
    subject_types_supported: ['public'],
    id_token_signing_alg_values_supported: keys.algorithms,
    acr_values_supported: secondFactor || passkeys ? ACR_VALUES : ACR_VALUES.slice(0, 1),
    scopes_supported: [
      ...new Set([...(hasGroups ? SCOPES : SCOPES_WITHOUT_GROUPS), ...scopes.map(({ name }) => name)]),
    ],
    // RFC 9728 §4
    ...(hasResources && {
      protected_resources: resources.map(({ identifier }) => identifier),
      revocation_list_uri: `${issuer}/revocations`,
    }),
    dpop_signing_alg_values_supported: DPOP_ALGORITHMS,
    ...(issuesAssertions && { identity_chaining_requested_token_types_supported: [ASSERTION_TOKEN] }),
    ...(acceptsAssertions && { authorization_grant_profiles_supported: [ASSERTION_PROFILE] }),
    claims_supported: hasGroups ? [...CLAIMS, 'groups'] : CLAIMS,
    token_endpoint_auth_methods_supported: [...METHODS, 'none'],
    token_endpoint_auth_signing_alg_values_supported: CLIENT_KEY_ALGORITHMS,
    revocation_endpoint_auth_methods_supported: [...METHODS, 'none'],
    revocation_endpoint_auth_signing_alg_values_supported: CLIENT_KEY_ALGORITHMS,
    introspection_endpoint_auth_methods_supported: METHODS,
    introspection_endpoint_auth_signing_alg_values_supported: CLIENT_KEY_ALGORITHMS,
    code_challenge_methods_supported: ['S256'],
    authorization_response_iss_parameter_supported: true,
    prompt_values_supported: [...PROMPTS, ...(isSignUpOpen ? ['create'] : [])],
    ui_locales_supported: locales,
    backchannel_logout_supported: true,
    backchannel_logout_session_supported: true,
    claims_parameter_supported: false,
    request_parameter_supported: false,
    request_uri_parameter_supported: false,
  };
}

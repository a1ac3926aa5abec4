import { DPOP_ALGORITHMS } from '../../core/http/dpop.js';
import { access, type FastifyTypebox } from '../../core/http/routes.js';
import { CLIENT_KEY_ALGORITHMS } from '../../core/kernel/public-jwk.js';
import { RESPONSE_MODES } from './authorize/rules.js';
import { CLAIMS, SCOPES } from './claims.js';
import type { IdentityAssertions } from './identity-assertions/module.js';
import { ASSERTION_PROFILE, ASSERTION_TOKEN, JWT_BEARER } from './identity-assertions/trust.js';
import type { Keys } from './keys.js';
import type { Resources } from './resources.js';
import { DEVICE_GRANT, TOKEN_EXCHANGE } from './tokens/request.js';

/** Headers of documents that every origin may read and cache. A plain GET needs no preflight. */
const PUBLIC_HEADERS = {
  'access-control-allow-origin': '*',
  'cache-control': 'public, max-age=300',
  'content-type': 'application/json; charset=utf-8',
  'cross-origin-resource-policy': 'cross-origin',
};
const WELL_KNOWN = '/.well-known/oauth-authorization-server';

export interface ClientRegistration {
  acceptsMetadata: boolean;
  acceptsRegistration: boolean;
}

export interface DiscoveryOptions {
  keys: Keys;
  /** The languages of the pages. */
  locales: readonly string[];
  isSignUpOpen: boolean;
  /** How clients become known without the operator. */
  clientRegistration: ClientRegistration;
  /** What a sign-in can prove. */
  acrValues: readonly string[];
  resources: Resources;
  /** Whether devices may use the provider. */
  hasDeviceFlow: boolean;
  /** Absent if identity assertions are not enabled. */
  identityAssertions: IdentityAssertions | undefined;
  issuer(): string;
}

/** The metadata and the JWK Set. */
export async function discoveryPlugin(fastify: FastifyTypebox, options: DiscoveryOptions): Promise<void> {
  publishMetadata(fastify, ['/.well-known/openid-configuration', WELL_KNOWN], options);
  const jwks = JSON.stringify(options.keys.jwks);
  publish(fastify, ['/.well-known/jwks.json', '/jwks'], () => jwks);
}

/** The metadata of an issuer with a path: RFC 8414 §3.1 inserts the well-known part before it, outside of the prefix. */
export async function pathMetadataPlugin(fastify: FastifyTypebox, options: DiscoveryOptions): Promise<void> {
  publishMetadata(fastify, [WELL_KNOWN + new URL(options.issuer()).pathname], options);
}

function publishMetadata(fastify: FastifyTypebox, paths: string[], options: DiscoveryOptions): void {
  // In development, the issuer is known only once the server listens.
  let known: { issuer: string; identifiers: readonly string[]; text: string } | undefined;
  const text = async () => {
    const issuer = options.issuer();
    const identifiers = await options.resources.identifiers();
    if (known?.issuer !== issuer || known.identifiers !== identifiers) {
      const metadata = providerMetadata(issuer, identifiers, options);
      known = { issuer, identifiers, text: JSON.stringify(metadata) };
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

/** Provider metadata (OIDC Discovery §3, RFC 8414 §2). */
function providerMetadata(
  issuer: string,
  identifiers: readonly string[],
  {
    locales,
    isSignUpOpen,
    clientRegistration,
    acrValues,
    keys,
    hasDeviceFlow,
    identityAssertions,
  }: DiscoveryOptions,
) {
  const hasResources = identifiers.length > 0;
  const { issue, redeem } = identityAssertions ?? {};
  return {
    issuer,
    authorization_endpoint: `${issuer}/authorize`,
    token_endpoint: `${issuer}/token`,
    pushed_authorization_request_endpoint: `${issuer}/par`,
    userinfo_endpoint: `${issuer}/userinfo`,
    revocation_endpoint: `${issuer}/revoke`,
    introspection_endpoint: `${issuer}/introspect`,
    ...(clientRegistration.acceptsRegistration && { registration_endpoint: `${issuer}/register` }),
    ...(clientRegistration.acceptsMetadata && { client_id_metadata_document_supported: true }),
    end_session_endpoint: `${issuer}/logout`,
    jwks_uri: `${issuer}/.well-known/jwks.json`,
    response_types_supported: ['code'],
    response_modes_supported: [...RESPONSE_MODES],
    // RFC 8628 §4
    ...(hasDeviceFlow && { device_authorization_endpoint: `${issuer}/device_authorization` }),
    grant_types_supported: [
      'authorization_code',
      'refresh_token',
      ...(hasResources ? ['client_credentials'] : []),
      ...(hasResources || issue ? [TOKEN_EXCHANGE] : []),
      ...(redeem ? [JWT_BEARER] : []),
      ...(hasDeviceFlow ? [DEVICE_GRANT] : []),
    ],
    subject_types_supported: ['public'],
    id_token_signing_alg_values_supported: keys.algorithms,
    acr_values_supported: acrValues,
    scopes_supported: [...SCOPES],
    // RFC 9728 §4
    ...(hasResources && {
      protected_resources: identifiers,
      revocation_list_uri: `${issuer}/revocations`,
    }),
    dpop_signing_alg_values_supported: [...DPOP_ALGORITHMS],
    ...(issue && { identity_chaining_requested_token_types_supported: [ASSERTION_TOKEN] }),
    ...(redeem && { authorization_grant_profiles_supported: [ASSERTION_PROFILE] }),
    claims_supported: [...CLAIMS],
    token_endpoint_auth_methods_supported: [...METHODS, 'none'],
    token_endpoint_auth_signing_alg_values_supported: [...CLIENT_KEY_ALGORITHMS],
    revocation_endpoint_auth_methods_supported: [...METHODS, 'none'],
    revocation_endpoint_auth_signing_alg_values_supported: [...CLIENT_KEY_ALGORITHMS],
    introspection_endpoint_auth_methods_supported: [...METHODS],
    introspection_endpoint_auth_signing_alg_values_supported: [...CLIENT_KEY_ALGORITHMS],
    code_challenge_methods_supported: ['S256'],
    authorization_response_iss_parameter_supported: true,
    prompt_values_supported: [
      'none',
      'login',
      'consent',
      'select_account',
      ...(isSignUpOpen ? ['create'] : []),
    ],
    ui_locales_supported: locales,
    backchannel_logout_supported: true,
    backchannel_logout_session_supported: true,
    claims_parameter_supported: false,
    request_parameter_supported: false,
    request_uri_parameter_supported: false,
  };
}

import { ACR_VALUES, CLAIMS, SCOPES } from './claims.js';

/** How clients with a secret prove it. */
const CLIENT_SECRET = ['client_secret_basic', 'client_secret_post'] as const;

/** Discovery (OIDC Discovery §3, RFC 8414 §2): only what is really so. */
export function providerMetadata(issuer: string) {
  return {
    issuer,
    authorization_endpoint: `${issuer}/authorize`,
    token_endpoint: `${issuer}/token`,
    userinfo_endpoint: `${issuer}/userinfo`,
    revocation_endpoint: `${issuer}/revoke`,
    introspection_endpoint: `${issuer}/introspect`,
    end_session_endpoint: `${issuer}/logout`,
    jwks_uri: `${issuer}/.well-known/jwks.json`,
    response_types_supported: ['code'],
    response_modes_supported: ['query'],
    grant_types_supported: ['authorization_code', 'refresh_token'],
    subject_types_supported: ['public'],
    id_token_signing_alg_values_supported: ['EdDSA'],
    acr_values_supported: [...ACR_VALUES],
    scopes_supported: [...SCOPES],
    claims_supported: [...CLAIMS],
    token_endpoint_auth_methods_supported: [...CLIENT_SECRET, 'none'],
    revocation_endpoint_auth_methods_supported: [...CLIENT_SECRET, 'none'],
    introspection_endpoint_auth_methods_supported: [...CLIENT_SECRET],
    code_challenge_methods_supported: ['S256'],
    authorization_response_iss_parameter_supported: true,
    prompt_values_supported: ['none', 'login', 'consent', 'select_account'],
    ui_locales_supported: ['en'],
    claims_parameter_supported: false,
    request_parameter_supported: false,
    request_uri_parameter_supported: false,
  };
}

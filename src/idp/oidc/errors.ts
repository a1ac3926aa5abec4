import { defineErrors } from '../../core/kernel/errors.js';

/** Codes of RFC 6749 §§4.1.2.1, 5.2, RFC 6750 §3.1 and of this provider, as responses and not as redirects. */
export const oidcErrors = defineErrors({
  invalid_request: [400, 'The request is invalid.'],
  invalid_grant: [
    400,
    'The code or refresh token is invalid, expired, already used or was issued to another client.',
  ],
  invalid_scope: [400, 'The requested scope exceeds the granted scope.'],
  invalid_target: [400, 'The resource is unknown, or was not authorized.'],
  invalid_dpop_proof: [400, 'The DPoP proof is missing or invalid.'],
  use_dpop_nonce: [400, 'The DPoP proof must contain the nonce of the header DPoP-Nonce.'],
  unauthorized_client: [
    400,
    'The client is registered for id_tokens with ES256, and the provider has no such key (IDP_ES256_KEY).',
  ],
  unsupported_response_type: [400, 'The response type is not supported.'],
  request_not_supported: [400, 'Request objects are not supported.'],
  request_uri_not_supported: [400, 'A pushed request cannot name another one.'],
  invalid_authorization_details: [
    400,
    'authorization_details are of no kind that the resource has approved.',
  ],
  invalid_binding_message: [
    400,
    'binding_message must be at most 100 characters on one line, without invisible ones.',
  ],
  expired_login_hint_token: [
    400,
    'login_hint_token is no valid access token of the agent for a person at the resource.',
  ],
  authorization_pending: [400, 'The person has not decided yet. Repeat the request after the interval.'],
  slow_down: [400, 'The request came too early. Wait for 5 seconds more between two requests from now on.'],
  access_denied: [400, 'The person has denied the request.'],
  expired_token: [400, 'The request has expired. Start again.'],
  unsupported_grant_type: [400, 'The grant type is not supported.'],
  browser_basic: [400, 'HTTP Basic authentication is for agents. Use the sign-in form in a browser.'],
  invalid_client: [401, 'Client authentication failed.'],
  invalid_credentials: [401, 'The handle or password is incorrect.'],
  invalid_token: [401, 'The access token is missing, expired or revoked.'],
  login_rejected: [
    403,
    'The sign-in page has expired, or the form was submitted from another site. Start again in the application.',
  ],
  uri_too_long: [414, 'The URL is longer than 8 KiB.'],
});

import { defineErrors } from '../kernel/errors.js';

/** Codes of RFC 6749 §§4.1.2.1, 5.2, RFC 6750 §3.1 and our own, as this domain answers them directly. */
export const oidcErrors = defineErrors({
  invalid_request: [400, 'The request is not valid.'],
  invalid_grant: [400, 'The code or refresh token is not valid, has been used or belongs to another client.'],
  invalid_scope: [400, 'The scope is wider than what was granted.'],
  unsupported_grant_type: [400, 'This grant type is not supported.'],
  browser_basic: [400, 'HTTP Basic is for agents. A browser signs in with the form.'],
  invalid_client: [401, 'The client could not be authenticated.'],
  invalid_credentials: [401, 'The handle or the password is wrong.'],
  sign_in_first: [401, 'Nobody is signed in here. Sign in at an application, then open this page again.'],
  invalid_token: [401, 'The access token is missing, expired or revoked.'],
  login_rejected: [
    403,
    'This page is too old, or its form was sent from somewhere else. Start again at the application.',
  ],
  uri_too_long: [414, 'The address is longer than 8 KiB.'],
});

import { defineErrors } from '../../core/kernel/errors.js';

/** RFC 7591 §3.2.2, and RFC 6750 §3.1 for the initial access token. */
export const registrationErrors = defineErrors({
  invalid_redirect_uri: [400, 'A redirect URI is not allowed.'],
  invalid_client_metadata: [400, 'The client metadata is not supported.'],
  invalid_token: [401, 'The initial access token is missing, unknown, expired or used up.'],
});

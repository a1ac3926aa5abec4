import { defineErrors } from '../../core/kernel/errors.js';

export const agentErrors = defineErrors({
  LOGIN_EXPIRED: [400, 'This sign-in has expired or was begun in another browser. Start again.'],
  RETURN_NOT_ALLOWED: [
    400,
    'returnTo must be a path like /welcome, or an address at an origin that CORS_ORIGIN lists.',
  ],
  INVALID_TICKET: [401, 'The ticket is invalid, has expired or belongs to another sign-in. Start again.'],
  INSUFFICIENT_SCOPE: [403, 'The access token does not have the scope that this needs.'],
  ACCOUNT_NOT_CONNECTED: [
    403,
    'The person of the access token has not connected their account here with the identity provider.',
  ],
  EMAIL_NOT_VERIFIED: [403, 'Confirm your e-mail address first with the link that was sent to it.'],
  AGENT_ACCOUNT_TAKEN: [409, 'This account of the identity provider is connected to another user.'],
  ALREADY_CONNECTED: [409, 'Another account of the identity provider is connected. Disconnect it first.'],
  IDENTITY_PROVIDER_UNAVAILABLE: [503, 'The identity provider does not respond. Try again later.'],
});

import { defineErrors } from '../../core/kernel/errors.js';

export const federationErrors = defineErrors({
  LOGIN_EXPIRED: [400, 'This sign-in has expired or was begun in another browser. Start again.'],
  RETURN_NOT_ALLOWED: [
    400,
    'returnTo must be a path like /welcome, or an address at an origin that CORS_ORIGIN lists.',
  ],
  INVALID_TICKET: [401, 'The ticket is invalid, has expired or belongs to another sign-in. Start again.'],
  PROVIDER_EMAIL_NOT_VERIFIED: [
    403,
    'The provider has not confirmed your e-mail address. Confirm it there first.',
  ],
  EMAIL_NOT_VERIFIED: [403, 'Confirm your e-mail address first with the link that was sent to it.'],
  LAST_LOGIN_METHOD: [
    409,
    'Without it you could not sign in. Choose a password with "forgot password" first.',
  ],
  ACCOUNT_EXISTS: [
    409,
    'An account with this e-mail address already exists. Sign in to it, then connect the provider.',
  ],
  IDENTITY_TAKEN: [409, 'This account of the provider is connected to another user.'],
  PROVIDER_UNAVAILABLE: [502, 'The provider of the sign-in does not respond. Try again later.'],
});

import { defineErrors } from '../../core/kernel/errors.js';

export const federationErrors = defineErrors({
  PROVIDER_EMAIL_NOT_VERIFIED: [
    403,
    'The provider has not confirmed your e-mail address. Confirm it there, or register with a password.',
  ],
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

import { defineErrors } from '../kernel/errors.js';

export const authErrors = defineErrors({
  INVALID_TOKEN: [400, 'This link is not valid any more. Ask for a new one.'],
  TOKEN_EXPIRED: [401, 'The access token has expired. Refresh it.'],
  INVALID_CREDENTIALS: [401, 'The e-mail address or the password is wrong.'],
  INVALID_REFRESH_TOKEN: [401, 'The refresh token is not valid. Sign in again.'],
  REFRESH_TOKEN_REUSED: [401, 'The refresh token was used before, so its session has ended. Sign in again.'],
  REGISTRATION_DISABLED: [403, 'New accounts cannot be made at the moment.'],
  ACCOUNT_SUSPENDED: [403, 'This account is suspended.'],
  EMAIL_NOT_VERIFIED: [403, 'Confirm your e-mail address first: follow the link that was sent to it.'],
  EMAIL_TAKEN: [409, 'An account with this e-mail address exists already.'],
});

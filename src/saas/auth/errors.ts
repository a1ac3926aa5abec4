import { defineErrors } from '../../core/kernel/errors.js';

export const authErrors = defineErrors({
  INVALID_TOKEN: [400, 'This link is invalid or has expired. Request a new one.'],
  TOKEN_EXPIRED: [401, 'The access token has expired. Refresh it.'],
  INVALID_CREDENTIALS: [401, 'The e-mail address or password is incorrect.'],
  INVALID_CODE: [401, 'The code is incorrect or was used before.'],
  CODE_EXPIRED: [401, 'The code has expired, was used or was replaced by a newer one. Request a new code.'],
  INVALID_CHALLENGE: [401, 'The sign-in has expired or was invalidated. Start again with the password.'],
  SECOND_FACTOR_REQUIRED: [401, 'This account has a second factor. Enter a code of it.'],
  SECOND_FACTOR_ENROLMENT_REQUIRED: [401, 'This account must have a second factor. Set it up to sign in.'],
  REAUTHENTICATION_REQUIRED: [401, 'Confirm with your password first that this is you.'],
  INVALID_REFRESH_TOKEN: [401, 'The refresh token is invalid. Sign in again.'],
  REFRESH_TOKEN_REUSED: [
    401,
    'The refresh token was already used, so the session was revoked. Sign in again.',
  ],
  ORIGIN_NOT_ALLOWED: [
    403,
    'This origin may not use session cookies. The operator can add it to CORS_ORIGIN.',
  ],
  IMPERSONATED: [
    403,
    'This session impersonates the user and is read-only. The owner of the account must sign in to change it.',
  ],
  REGISTRATION_DISABLED: [403, 'Registration is currently disabled.'],
  REGISTRATION_REJECTED: [403, 'The application does not accept this registration.'],
  ACCOUNT_SUSPENDED: [403, 'This account is suspended.'],
  EMAIL_NOT_VERIFIED: [403, 'Confirm your e-mail address first with the link that was sent to it.'],
  EMAIL_TAKEN: [409, 'An account with this e-mail address already exists.'],
});

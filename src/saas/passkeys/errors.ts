import { defineErrors } from '../../core/kernel/errors.js';

export const passkeyErrors = defineErrors({
  PASSKEY_EXPIRED: [400, 'This request for a passkey has expired. Begin again.'],
  PASSKEY_REJECTED: [400, 'The passkey could not be added. Begin again.'],
  INVALID_PASSKEY: [401, 'The passkey is unknown here, or its signature is invalid. Try again.'],
  EMAIL_NOT_VERIFIED: [403, 'Confirm your e-mail address first with the link that was sent to it.'],
  LAST_LOGIN_METHOD: [
    409,
    'Without it you could not sign in. Choose a password with "forgot password" first.',
  ],
  TOO_MANY_PASSKEYS: [409, 'This account has as many passkeys as possible. Remove one first.'],
});

import { Secret, TOTP } from 'otpauth';

/** Authenticator apps. */

/** The encryption key, with which people of both products can have a second factor. */
export const FACTOR_KEY = 'Rk7tQ2vXw9ZbN4mLp6Jd3Hs8Fg1Yc5Ae';

/** The code that an app shows at a time, in Unix milliseconds. */
export const codeAt = (secret: string, time: number): string =>
  new TOTP({ secret: Secret.fromBase32(secret.replaceAll(' ', '')) }).generate({ timestamp: time });

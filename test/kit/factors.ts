import { Secret, TOTP } from 'otpauth';
import type { SaasApp } from './app.js';

/** Authenticator apps. */

/** The encryption key, with which people of both products can have a second factor. */
export const FACTOR_KEY = 'Rk7tQ2vXw9ZbN4mLp6Jd3Hs8Fg1Yc5Ae';

/** The code that an app shows at a time, in Unix milliseconds. */
export const codeAt = (secret: string, time: number): string =>
  new TOTP({ secret: Secret.fromBase32(secret.replaceAll(' ', '')) }).generate({ timestamp: time });

/** Sets up an authenticator app for a user of saas-backend whose address is verified. */
export async function setUpFactor({ post, clock }: Pick<SaasApp, 'post' | 'clock'>, token: string) {
  const { secret } = (await post('/user/second-factor/begin', undefined, { token })).body.data;
  const code = () => codeAt(secret, clock.now());
  const confirmed = await post('/user/second-factor/confirm', { code: code() }, { token });
  if (confirmed.status !== 200) throw new Error(`${confirmed.status} ${confirmed.text}`);
  const codes: string[] = confirmed.body.data.recoveryCodes;
  return { secret, code, codes };
}

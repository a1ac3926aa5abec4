import { SignJWT } from 'jose';
import type { IssuerKey } from './identity-assertions.js';
import { ISSUER } from './idp.js';

/** Workloads of a platform, as a test plays them. */

export const SUBJECT = 'repo:acme/app:ref:refs/heads/main';

/** A token as a platform gives it; `undefined` in `claims` and `header` leaves one out. */
export function workloadToken(
  { issuer, key }: { issuer: string; key: IssuerKey },
  now: number,
  claims: Record<string, unknown> = {},
  header: Record<string, unknown> = {},
): Promise<string> {
  const iat = Math.floor(now / 1000);
  const whole = { iss: issuer, sub: SUBJECT, aud: ISSUER, iat, exp: iat + 300, ...claims };
  return new SignJWT(JSON.parse(JSON.stringify(whole)))
    .setProtectedHeader({ alg: key.algorithm, kid: key.jwk.kid, ...header })
    .sign(key.privateKey);
}

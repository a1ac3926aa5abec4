import { isIP } from 'node:net';
import { Type } from 'typebox';
import { option } from '../config/options.js';

/** @param prefix of the environment variables */
export const passkeyOptions = (prefix: string) => ({
  passkeys: option(Type.Boolean({ default: false }), {
    env: `${prefix}PASSKEYS`,
    doc: 'Let people sign in with passkeys (WebAuthn). They belong to the host of the public URL: with another host, nobody can use them any more.',
  }),
});

/** Why browsers cannot use passkeys at this address; undefined if they can. */
export function passkeyObstacle(publicUrl: string | undefined): string | undefined {
  if (publicUrl === undefined) return undefined;
  const { hostname } = new URL(publicUrl);
  return isIP(hostname.replace(/^\[|\]$/g, '')) === 0
    ? undefined
    : `names an IP address, ${hostname}, at which browsers offer no passkeys`;
}

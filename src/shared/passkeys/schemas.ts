import { isIP } from 'node:net';
import { Type } from 'typebox';
import type { Report } from '../../core/config/configuration-error.js';
import { option } from '../../core/config/options.js';

/** @param prefix of the environment variables */
export const passkeyOptions = (prefix: string) => ({
  passkeys: option(Type.Boolean({ default: false }), {
    env: `${prefix}PASSKEYS`,
    doc: 'Let people sign in with passkeys (WebAuthn). They belong to the host of the public URL: with another host, nobody can use them any more.',
  }),
});

/** Why browsers cannot use passkeys at this address; undefined if they can. */
function obstacleOf(publicUrl: string): string | undefined {
  const { hostname } = new URL(publicUrl);
  return isIP(hostname.replace(/^\[|\]$/g, '')) === 0
    ? undefined
    : `names an IP address, ${hostname}, at which browsers offer no passkeys`;
}

/** Prevents a start in production with passkeys that no browser can use. @param prefix of the environment variables */
export function refuseUnusablePasskeys(
  { passkeys, publicUrl }: { passkeys: boolean; publicUrl?: string | undefined },
  prefix: string,
  report: Report,
): void {
  // An invalid address is reported already.
  if (!passkeys || publicUrl === undefined || !URL.canParse(publicUrl)) return;
  const obstacle = obstacleOf(publicUrl);
  if (obstacle !== undefined)
    report.unsafe(`${prefix}PUBLIC_URL ${obstacle}.`, `Use a host name, or unset ${prefix}PASSKEYS.`);
}

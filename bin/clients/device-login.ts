import { type DeviceAuthorizationResponse, initiateDeviceAuthorization } from 'openid-client';
import { type Clock, SECOND } from '../../src/core/kernel/clock.js';
import { DEVICE_GRANT } from '../../src/idp/oidc/tokens/request.js';
import {
  connect,
  definedOf,
  failWith,
  LoginFailed,
  type LoginTokens,
  type ProviderRequest,
  requestTokens,
} from './provider-client.js';

/** A client on a device without a browser (RFC 8628): a person signs in elsewhere and enters a code. */

export interface DeviceLoginDependencies {
  clock: Clock;
  wait(milliseconds: number): Promise<unknown>;
  /** What the person has to see (RFC 8628 §3.2). */
  show(code: DeviceAuthorizationResponse): void;
}

const DEFAULT_INTERVAL_MS = 5 * SECOND;
/** The addition of each `slow_down` (RFC 8628 §3.5). */
const SLOWER_MS = 5 * SECOND;
const LONGEST_INTERVAL_MS = 60 * SECOND;

/**
 * Asks for a code, shows it, and waits until the person has decided.
 *
 * @throws LoginFailed
 */
export async function logInOnDevice(
  request: ProviderRequest,
  { clock, wait, show }: DeviceLoginDependencies,
): Promise<LoginTokens> {
  const provider = await connect(request);
  if (provider.serverMetadata().device_authorization_endpoint === undefined)
    throw new LoginFailed(`${request.issuer} does not offer sign-in on devices.`);
  const { scope, resource } = request;
  const begun = await initiateDeviceAuthorization(provider, definedOf({ scope, resource })).catch(
    failWith((reason) => `The provider has not begun the sign-in: ${reason}.`),
  );
  const expiresAt = clock.now() + begun.expires_in * SECOND;
  show(begun);
  const poll = { device_code: begun.device_code, resource };
  let interval = begun.interval === undefined ? DEFAULT_INTERVAL_MS : begun.interval * SECOND;
  for (;;) {
    await wait(interval);
    if (clock.now() >= expiresAt)
      throw new LoginFailed('expired_token: The code was not entered in time.', 'expired_token');
    try {
      return await requestTokens(provider, DEVICE_GRANT, poll, { clock, scope });
    } catch (error) {
      interval = nextInterval(interval, error);
    }
  }
}

/** How long to wait before the next request. @throws an error after which there is none */
function nextInterval(interval: number, error: unknown): number {
  if (!(error instanceof LoginFailed)) throw error;
  switch (error.code) {
    case 'authorization_pending':
      return interval;
    case 'slow_down':
      return interval + SLOWER_MS;
    // RFC 8628 §3.5 recommends to back off exponentially without an answer.
    case undefined:
    case '502':
    case 'OVERLOADED':
    case 'RATE_LIMITED':
      return Math.max(interval, Math.min(2 * interval, LONGEST_INTERVAL_MS));
    default:
      throw error;
  }
}

import { type Clock, SECOND } from '../../src/core/kernel/clock.js';
import { DEVICE_GRANT } from '../../src/idp/oidc/tokens/request.js';
import {
  discover,
  LoginFailed,
  type LoginTokens,
  loginTokens,
  type ProviderRequest,
  post,
  type TokenResponse,
  verifyIdToken,
} from './provider-client.js';

/** A client on a device without a browser (RFC 8628): a person signs in elsewhere and enters a code. */

/** What the person has to see (RFC 8628 §3.2). */
export interface DeviceCode {
  user_code: string;
  verification_uri: string;
  verification_uri_complete?: string;
  /** Seconds. */
  expires_in: number;
}

interface DeviceAuthorization extends DeviceCode {
  device_code: string;
  interval?: number;
}

export interface DeviceLoginDependencies {
  clock: Clock;
  wait(milliseconds: number): Promise<unknown>;
  show(code: DeviceCode): void;
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
  const metadata = await discover(request.issuer);
  const { device_authorization_endpoint: endpoint, token_endpoint: tokenEndpoint } = metadata;
  if (endpoint === undefined) throw new LoginFailed(`${request.issuer} does not offer sign-in on devices.`);
  const { scope, resource } = request;
  const begun = await post<DeviceAuthorization>(endpoint, request, { scope, resource });
  const expiresAt = clock.now() + begun.expires_in * SECOND;
  show(begun);
  let interval = begun.interval === undefined ? DEFAULT_INTERVAL_MS : begun.interval * SECOND;
  for (;;) {
    await wait(interval);
    const startedAt = clock.now();
    if (startedAt >= expiresAt)
      throw new LoginFailed('expired_token: The code was not entered in time.', 'expired_token');
    const poll = { grant_type: DEVICE_GRANT, device_code: begun.device_code, resource };
    const answer = await post(tokenEndpoint, request, poll).catch((error: unknown) => {
      interval = nextInterval(interval, error);
    });
    if (answer === undefined) continue;
    const { id_token: idToken } = answer as TokenResponse;
    if (idToken !== undefined) await verifyIdToken(metadata, request, idToken, undefined);
    return loginTokens(answer, { startedAt, scope });
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

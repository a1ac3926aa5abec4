import type { Identity } from '../../../core/http/identity.js';
import { type Clock, SECOND } from '../../../core/kernel/clock.js';
import { authErrors } from '../errors.js';

/** What a route requires of the sign-in. */
export interface RecentAuthOptions {
  /** Seconds since the user last signed in or proved it again. Default: 600. */
  maxAge?: number;
  /** Whether the session must have used a second factor. Default: false. */
  secondFactor?: boolean;
}

/**
 * Rejects sessions whose last proof is too old, or lacks the second factor, with the challenge of RFC 9470, and operators who act as
 * the user.
 * @throws IMPERSONATED, REAUTHENTICATION_REQUIRED, SECOND_FACTOR_REQUIRED
 */
export function requireRecent(
  { session }: Identity,
  { maxAge = 600, secondFactor = false }: RecentAuthOptions,
  clock: Clock,
): void {
  if (session.impersonator) throw authErrors.IMPERSONATED();
  const needed = `max_age="${maxAge}"${secondFactor ? ', acr_values="mfa"' : ''}`;
  const headers = {
    'www-authenticate': `Bearer realm="api", error="insufficient_user_authentication", ${needed}`,
  };
  const age = clock.now() - Date.parse(session.authenticatedAt);
  if (secondFactor && !session.amr.includes('mfa')) throw authErrors.SECOND_FACTOR_REQUIRED({ headers });
  if (age > maxAge * SECOND) throw authErrors.REAUTHENTICATION_REQUIRED({ headers });
}

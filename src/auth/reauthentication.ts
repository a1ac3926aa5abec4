import type { Session } from '../http/schemas.js';
import type { Origin } from '../http/scope.js';
import { type Clock, SECOND } from '../kernel/clock.js';
import { httpErrors } from '../kernel/errors.js';
import type { Audit } from '../ops/audit.js';
import type { Credentials } from './credentials.js';
import type { AuthDependencies } from './dependencies.js';
import { authErrors } from './errors.js';
import type { SecondFactors } from './second-factor.js';
import { type Identity, isSessionValid } from './sessions.js';
import { AMR, toSessionView } from './store.js';

/** Proves in a session that it is still used by its user (RFC 9470). */
export interface Reauthentication {
  /** @throws INVALID_CREDENTIALS, RATE_LIMITED, OVERLOADED */
  provePassword(identity: Identity, password: string, origin: Origin): Promise<void>;
  /**
   * Renews `authenticatedAt` and `amr` of the session. An account with a second factor needs a code, too.
   * @throws INVALID_CREDENTIALS, SECOND_FACTOR_REQUIRED, INVALID_CODE, RATE_LIMITED, OVERLOADED
   */
  reauthenticate(
    identity: Identity,
    given: { password: string; code?: string | undefined },
    origin: Origin,
  ): Promise<Session>;
}

export interface ReauthenticationDependencies extends Pick<AuthDependencies, 'sessions' | 'clock'> {
  credentials: Credentials;
  secondFactors?: SecondFactors | undefined;
  audit: Audit;
}

export function createReauthentication(deps: ReauthenticationDependencies): Reauthentication {
  const { sessions, credentials, secondFactors, audit, clock } = deps;

  const verifyPassword = ({ user: { id, email } }: Identity, password: string, origin: Origin) =>
    credentials.verify({ id, email, password }, origin, 'reauthentication.failed');

  return {
    async provePassword(identity, password, origin) {
      await verifyPassword(identity, password, origin);
    },

    async reauthenticate(identity, { password, code }, origin) {
      const { user } = await verifyPassword(identity, password, origin);
      let amr: readonly string[] | undefined;
      if (secondFactors && (await secondFactors.stateOf(user.id))) {
        if (code === undefined) throw authErrors.SECOND_FACTOR_REQUIRED();
        const method = await secondFactors.verify(user.id, code, origin);
        if (method === null) throw authErrors.INVALID_CODE();
        amr = AMR[method];
      }
      const proven = { set: { authenticatedAt: clock.now(), ...(amr && { amr }) } };
      const session = await sessions.updateOne({ id: identity.session.id, revokedAt: null }, proven);
      if (!session || !isSessionValid(user, session, clock.now())) throw httpErrors.UNAUTHENTICATED();
      await audit.record({ event: 'session.reauthenticated', subject: user.id, ip: origin.ip });
      return toSessionView(session);
    },
  };
}

/** What a route requires of the sign-in. */
export interface RecentAuthOptions {
  /** Seconds since the user last signed in or proved it again. Default: 600. */
  maxAge?: number;
  /** Whether the session must have used a second factor. Default: false. */
  secondFactor?: boolean;
}

/**
 * Rejects sessions whose last proof is too old, or lacks the second factor, with the challenge of RFC 9470.
 * @throws REAUTHENTICATION_REQUIRED, SECOND_FACTOR_REQUIRED
 */
export function requireRecent(
  { session }: Identity,
  { maxAge = 600, secondFactor = false }: RecentAuthOptions,
  clock: Clock,
): void {
  const needed = `max_age="${maxAge}"${secondFactor ? ', acr_values="mfa"' : ''}`;
  const headers = {
    'www-authenticate': `Bearer realm="api", error="insufficient_user_authentication", ${needed}`,
  };
  const age = clock.now() - Date.parse(session.authenticatedAt);
  if (secondFactor && !session.amr.includes('mfa')) throw authErrors.SECOND_FACTOR_REQUIRED({ headers });
  if (age > maxAge * SECOND) throw authErrors.REAUTHENTICATION_REQUIRED({ headers });
}

import type { Session } from '../http/schemas.js';
import type { Origin } from '../http/scope.js';
import { httpErrors } from '../kernel/errors.js';
import type { Audit } from '../ops/audit.js';
import type { Credentials } from './credentials.js';
import type { AuthDependencies } from './dependencies.js';
import { authErrors } from './errors.js';
import type { SecondFactors } from './second-factor.js';
import type { Identity } from './sessions.js';
import { FIRST_FACTOR, isSessionValid, SECOND_FACTOR, toSessionView } from './store.js';
import type { Unlock } from './unlock.js';

/** Proves in a session that it is still used by its user (RFC 9470). */
export interface Reauthentication {
  /** The password of the user or, without one, a recent sign-in. @throws as `Credentials.verifyOwner` */
  proveOwner(identity: Identity, password: string | undefined, origin: Origin): Promise<void>;
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
  offerUnlock: Unlock['offerUnlock'];
  audit: Audit;
}

export function createReauthentication(deps: ReauthenticationDependencies): Reauthentication {
  const { sessions, credentials, secondFactors, audit, clock } = deps;

  return {
    async proveOwner(identity, password, origin) {
      await credentials.verifyOwner(identity, password, origin, 'reauthentication.failed');
    },

    async reauthenticate(identity, { password, code }, origin) {
      const user = await credentials.verifyOwner(identity, password, origin, 'reauthentication.failed');
      let amr: readonly string[] | undefined;
      if (secondFactors && (await secondFactors.stateOf(user.id))) {
        if (code === undefined) throw authErrors.SECOND_FACTOR_REQUIRED();
        const method = await secondFactors.verify(user.id, code, origin, () =>
          deps.offerUnlock(user.email, origin),
        );
        if (method === null) throw authErrors.INVALID_CODE();
        amr = [FIRST_FACTOR.password, ...SECOND_FACTOR[method]];
      }
      const proven = { set: { authenticatedAt: clock.now(), ...(amr && { amr }) } };
      const session = await sessions.updateOne({ id: identity.session.id, revokedAt: null }, proven);
      if (!session || !isSessionValid(user, session, clock.now())) throw httpErrors.UNAUTHENTICATED();
      await audit.record({ event: 'session.reauthenticated', subject: user.id, ip: origin.ip });
      return toSessionView(session);
    },
  };
}

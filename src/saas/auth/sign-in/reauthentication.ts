import type { Session } from '../../../core/http/schemas.js';
import type { Origin } from '../../../core/http/scope.js';
import { AppError } from '../../../core/kernel/errors.js';
import type { Audit } from '../../../core/ops/audit.js';
import { authErrors } from '../errors.js';
import type { Unlock } from '../links/unlock.js';
import type { Identity, SessionService } from '../sessions/sessions.js';
import { FIRST_FACTOR, SECOND_FACTOR, toSessionView } from '../store.js';
import type { AccountService } from '../users/account.js';
import type { Credentials } from './credentials.js';
import type { SecondFactors } from './second-factor.js';
import type { SignedIn } from './sign-in.js';

/** Proves in a session that it is still used by its user (RFC 9470). */
export interface Reauthentication {
  /** The password of the user or, without one, a recent sign-in. @throws as `Credentials.verifyOwner` */
  proveOwner(identity: Identity, password: string | undefined, origin: Origin): Promise<void>;
  /**
   * Replaces the session by a new one, so that tokens of the old one that were stolen do not become recent. An account with a
   * second factor needs a code, too.
   * @throws INVALID_CREDENTIALS, SECOND_FACTOR_REQUIRED, INVALID_CODE, RATE_LIMITED, OVERLOADED
   */
  reauthenticate(
    identity: Identity,
    given: { password: string; code?: string | undefined },
    origin: Origin,
  ): Promise<SignedIn & { session: Session }>;
}

export interface ReauthenticationDependencies
  extends Pick<SessionService, 'startSession'>,
    Pick<AccountService, 'revokeSession'> {
  credentials: Credentials;
  secondFactors?: SecondFactors | undefined;
  offerUnlock: Unlock['offerUnlock'];
  audit: Audit;
}

export function createReauthentication(deps: ReauthenticationDependencies): Reauthentication {
  const { startSession, revokeSession, credentials, secondFactors, audit } = deps;

  return {
    async proveOwner(identity, password, origin) {
      await credentials.verifyOwner(identity, password, origin, 'reauthentication.failed');
    },

    async reauthenticate(identity, { password, code }, origin) {
      const user = await credentials.verifyOwner(identity, password, origin, 'reauthentication.failed');
      let { amr }: { amr: readonly string[] } = identity.session;
      if (secondFactors && (await secondFactors.stateOf(user.id))) {
        if (code === undefined) throw authErrors.SECOND_FACTOR_REQUIRED();
        const method = await secondFactors.verify(user.id, code, origin, () =>
          deps.offerUnlock(user.email, origin),
        );
        if (method === null) throw authErrors.INVALID_CODE();
        amr = [FIRST_FACTOR.password, ...SECOND_FACTOR[method]];
      }
      const { session, signedIn } = await startSession(user, origin, amr);
      // The session may have ended meanwhile.
      await revokeSession(identity, identity.session.id, origin).catch(unlessFound);
      await audit.record({ event: 'session.reauthenticated', subject: user.id, ip: origin.ip });
      return { ...signedIn, session: toSessionView(session) };
    },
  };
}

const unlessFound = (error: unknown): void => {
  if (!(error instanceof AppError) || error.code !== 'NOT_FOUND') throw error;
};

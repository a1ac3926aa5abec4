import type { Identity } from '../../../core/http/identity.js';
import type { RequestSource } from '../../../core/http/routes.js';
import type { Session } from '../../../core/http/schemas.js';
import { AppError } from '../../../core/kernel/errors.js';
import type { AuthDependencies } from '../dependencies.js';
import { authErrors } from '../errors.js';
import type { Unlock } from '../links/unlock.js';
import type { SessionService } from '../sessions/sessions.js';
import { FIRST_FACTOR, SECOND_FACTOR, toSessionView } from '../store.js';
import type { AccountService } from '../users/account.js';
import type { Credentials } from './credentials.js';
import type { SignedIn } from './sign-in.js';

/** Proves in a session that it is still used by its user (RFC 9470). */
export type Reauthentication = ReturnType<typeof createReauthentication>;

export interface ReauthenticationDependencies extends AuthDependencies {
  startSession: SessionService['startSession'];
  revokeSession: AccountService['revokeSession'];
  credentials: Credentials;
  offerUnlock: Unlock['offerUnlock'];
}

export function createReauthentication(deps: ReauthenticationDependencies) {
  const { startSession, revokeSession, credentials, secondFactors, audit } = deps;

  return {
    /** The password of the user or, without one, a recent sign-in. @throws as `Credentials.verifyOwner` */
    async proveOwner(identity: Identity, password: string | undefined, source: RequestSource) {
      await credentials.verifyOwner(identity, password, source, 'reauthentication.failed');
    },

    /**
     * Replaces the session by a new one, so that tokens of the old one that were stolen do not become recent. An account with a
     * second factor needs a code, too.
     * @throws INVALID_CREDENTIALS, SECOND_FACTOR_REQUIRED, INVALID_CODE, RATE_LIMITED, OVERLOADED
     */
    async reauthenticate(
      identity: Identity,
      { password, code }: { password: string; code?: string | undefined },
      source: RequestSource,
    ): Promise<SignedIn & { session: Session }> {
      const user = await credentials.verifyOwner(identity, password, source, 'reauthentication.failed');
      let { amr }: { amr: readonly string[] } = identity.session;
      if (secondFactors && (await secondFactors.stateOf(user.id))) {
        if (code === undefined) throw authErrors.SECOND_FACTOR_REQUIRED();
        const method = await secondFactors.verify(user.id, code, source, () =>
          deps.offerUnlock(user.email, source),
        );
        if (method === null) throw authErrors.INVALID_CODE();
        amr = [FIRST_FACTOR.password, ...SECOND_FACTOR[method]];
      }
      const { session, signedIn } = await startSession(user, source, amr);
      // The session may have ended meanwhile.
      await revokeSession(identity, identity.session.id, source).catch(unlessFound);
      await audit.record({ event: 'session.reauthenticated', subject: user.id, ip: source.ip });
      return { ...signedIn, session: toSessionView(session) };
    },
  };
}

const unlessFound = (error: unknown): void => {
  if (!(error instanceof AppError) || error.code !== 'NOT_FOUND') throw error;
};

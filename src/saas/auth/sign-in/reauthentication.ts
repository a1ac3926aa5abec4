import type { Identity } from '../../../core/http/identity.js';
import type { RequestSource } from '../../../core/http/routes.js';
import type { Session } from '../../../core/http/schemas.js';
import type { AuthDependencies } from '../dependencies.js';
import { authErrors } from '../errors.js';
import type { Unlock } from '../links/unlock.js';
import type { SessionService } from '../sessions/sessions.js';
import { FIRST_FACTOR, SECOND_FACTOR, toSessionView } from '../store.js';
import type { Credentials } from './credentials.js';
import type { SignedIn } from './sign-in.js';

/** Proves in a session that it is still used by its user (RFC 9470). */
export type Reauthentication = ReturnType<typeof createReauthentication>;

export interface ReauthenticationDependencies extends AuthDependencies {
  newSession: SessionService['newSession'];
  revocation: SessionService['revocation'];
  credentials: Credentials;
  offerUnlock: Unlock['offerUnlock'];
}

export function createReauthentication(deps: ReauthenticationDependencies) {
  const { sessions, newSession, revocation, credentials, secondFactors, commit, audit } = deps;

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
      // The session may have used a passkey, which the password alone does not prove again.
      let amr: readonly string[] = user.operatorRole ? [FIRST_FACTOR.password] : identity.session.amr;
      if (secondFactors && (await secondFactors.stateOf(user.id))) {
        if (code === undefined) throw authErrors.SECOND_FACTOR_REQUIRED();
        const method = await secondFactors.verify(user.id, code, source, () =>
          deps.offerUnlock(user.email, source),
        );
        if (method === null) throw authErrors.INVALID_CODE();
        amr = [FIRST_FACTOR.password, ...SECOND_FACTOR[method]];
      }
      const { session, signedIn } = await newSession(user, source, amr);
      const { ip } = source;
      const replacing = [
        sessions.inserting(session),
        audit.entry({ event: 'session.reauthenticated', subject: user.id, ip }),
      ];
      const ended = await revocation(user.id, identity.session.id, { ip });
      // The old session may have ended meanwhile.
      if (!(await commit([...replacing, ...ended])).committed) await commit(replacing);
      return { ...signedIn, session: toSessionView(session) };
    },
  };
}

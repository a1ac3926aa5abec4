import type { Origin } from '../http/scope.js';
import { isUnexpired } from '../kernel/clock.js';
import { httpErrors } from '../kernel/errors.js';
import type { Audit } from '../ops/audit.js';
import { UniqueViolation } from '../storage/collection.js';
import type { Throttle } from '../throttle/throttle.js';
import type { ConfirmAddress, ConfirmationProof } from './confirmation.js';
import type { Credentials } from './credentials.js';
import type { AuthDependencies } from './dependencies.js';
import { authErrors } from './errors.js';
import { authLimits } from './limits.js';
import { newLinkToken, VERIFY_LIFE } from './links.js';
import type { Identity } from './sessions.js';
import { ALL_LINKS, type UserDocument } from './store.js';

/** Another address for an account: it holds once a link that was sent to the new one is followed. */
export interface EmailChange {
  /** @throws INVALID_CREDENTIALS, EMAIL_TAKEN, VALIDATION_ERROR, RATE_LIMITED, OVERLOADED */
  changeEmail(identity: Identity, given: { email: string; password: string }, origin: Origin): Promise<void>;
  /**
   * Uses the link of a change. The unique index decides between two who want one address.
   * @throws INVALID_TOKEN, EMAIL_TAKEN, and what `ConfirmAddress` throws
   */
  confirmChange(
    user: UserDocument,
    hash: string,
    proof: ConfirmationProof,
    origin: Origin,
  ): Promise<{ passwordChanged: boolean }>;
}

export interface EmailChangeDependencies
  extends Pick<
    AuthDependencies,
    'users' | 'mails' | 'emit' | 'viewOf' | 'backgroundTasks' | 'clock' | 'random' | 'verificationRequired'
  > {
  credentials: Credentials;
  throttle: Pick<Throttle, 'count' | 'tryCountKey' | 'trustOnly'>;
  audit: Audit;
  confirmAddress: ConfirmAddress;
}

export function createEmailChange(deps: EmailChangeDependencies): EmailChange {
  const { users, mails, credentials, throttle, audit, clock } = deps;
  const isTaken = async (email: string) => (await users.findOne({ email })) !== null;

  return {
    async changeEmail({ user: { id, email } }, given, origin) {
      const newEmail = given.email.toLowerCase();
      if (newEmail === email) {
        const message = 'is already your address';
        throw httpErrors.VALIDATION_ERROR({ details: [{ path: 'email', message }] });
      }
      const { user } = await credentials.prove(
        { id, email, password: given.password },
        origin,
        'email.change-refused',
      );
      await throttle.count(authLimits.mail, origin.ip);
      // Where registration does not tell which addresses are known, nothing else does.
      if (!deps.verificationRequired && (await isTaken(newEmail))) throw authErrors.EMAIL_TAKEN();
      // Before the link: one that is not sent must not take the place of one that was.
      if (!(await throttle.tryCountKey(authLimits.mailTo.change, newEmail, origin.ip))) return;
      const link = newLinkToken(id, VERIFY_LIFE, deps);
      const pending = await users.updateOne(
        { id, email, passwordVersion: user.passwordVersion, suspendedAt: null },
        { set: { newEmail, changeHash: link.hash, changeExpiresAt: link.expiresAt } },
      );
      if (!pending) throw authErrors.INVALID_CREDENTIALS();
      await audit.record({ event: 'email.change-asked', subject: id, ip: origin.ip });
      deps.backgroundTasks.run('change of address', async () => {
        if (!(await isTaken(newEmail))) await mails.verifyEmail({ id, email: newEmail }, link);
      });
    },

    async confirmChange(user, hash, proof, origin) {
      const { id: userId, newEmail, changeHash, changeExpiresAt = 0 } = user;
      const isLive = isUnexpired(changeExpiresAt, { now: clock.now(), life: VERIFY_LIFE });
      if (newEmail === undefined || changeHash !== hash || !isLive) {
        throw authErrors.INVALID_TOKEN();
      }
      const change = {
        link: { changeHash: hash },
        email: newEmail,
        unset: ALL_LINKS,
        inc: { emailVersion: 1 },
        announce: () => mails.emailChanged(user, newEmail, (user.emailVersion ?? 0) + 1),
      };
      const confirmed = await deps.confirmAddress(user, proof, change, origin).catch((error: unknown) => {
        throw error instanceof UniqueViolation ? authErrors.EMAIL_TAKEN() : error;
      });
      if (!confirmed) throw authErrors.INVALID_TOKEN();
      await Promise.all([
        audit.record({ event: 'email.changed', subject: userId, ip: origin.ip }),
        throttle.trustOnly(newEmail, origin.ip),
      ]);
      if (!user.emailVerified)
        deps.emit('user.verified', { userId, user: await deps.viewOf(confirmed.user) });
      return { passwordChanged: confirmed.passwordChanged };
    },
  };
}

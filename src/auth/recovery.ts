import type { Origin } from '../http/scope.js';
import { isUnexpired } from '../kernel/clock.js';
import type { Audit } from '../ops/audit.js';
import type { Throttle } from '../throttle/throttle.js';
import type { AuthDependencies } from './dependencies.js';
import { authErrors } from './errors.js';
import { authLimits } from './limits.js';
import { newLinkToken, RESET_LIFE, readLinkToken } from './links.js';
import type { NewPasswords } from './new-password.js';
import { isClosed, RECOVERY_LINKS, type UserDocument } from './store.js';
import type { Verification } from './verification.js';

/** A new password for whoever forgot theirs: proved by a link that was sent to the address. */
export interface Recovery {
  /** Sends a link if the address is one of ours, after the answer, which is always the same. @throws RATE_LIMITED */
  forgotPassword(email: string, origin: Origin): Promise<void>;
  /**
   * Spends the link, ends every session and gives the account its new password, in one write.
   * @throws INVALID_TOKEN, WEAK_PASSWORD, VALIDATION_ERROR, RATE_LIMITED, OVERLOADED
   */
  resetPassword(given: { token: string; password: string }, origin: Origin): Promise<void>;
}

export interface RecoveryDependencies
  extends Pick<
    AuthDependencies,
    'users' | 'passwords' | 'foreignHashes' | 'mails' | 'emit' | 'backgroundTasks' | 'clock' | 'random'
  > {
  newPasswords: NewPasswords;
  throttle: Pick<Throttle, 'count' | 'tryCountKey' | 'trustOnly'>;
  audit: Audit;
  markVerified: Verification['markVerified'];
}

export function createRecovery(
  deps: RecoveryDependencies,
): Recovery & { sendReset(user: UserDocument): Promise<void> } {
  const { users, mails, newPasswords, throttle, audit, clock } = deps;

  /** It takes the place of older ones, also of those that would confirm the address with the password as it is. */
  const sendReset = async ({ id, email }: UserDocument): Promise<void> => {
    const link = newLinkToken(id, RESET_LIFE, deps);
    // Only where the address is still that one: the link must not reach a mailbox that was theirs.
    const owner = await users.updateOne(
      { id, email, suspendedAt: null },
      {
        set: { resetHash: link.hash, resetExpiresAt: link.expiresAt },
        unset: ['verifyHash', 'verifyExpiresAt'],
      },
    );
    if (owner) await mails.passwordReset(owner, link);
  };

  return {
    sendReset,

    async forgotPassword(email, { ip }) {
      await throttle.count(authLimits.mail, ip);
      const address = email.toLowerCase();
      deps.backgroundTasks.run('password reset', async () => {
        if (!(await throttle.tryCountKey(authLimits.mailTo.reset, address, ip))) return;
        const user = await users.findOne({ email: address });
        await audit.recordFailure({ event: 'password.forgotten', ip, ...(user && { subject: user.id }) });
        if (user && !isClosed(user)) await sendReset(user);
      });
    },

    async resetPassword({ token, password }, origin) {
      await throttle.count(authLimits.link, origin.ip);
      newPasswords.check(password);
      const claim = readLinkToken(token);
      const user = claim && (await users.findOne({ id: claim.userId }));
      const isCurrent = user?.resetHash === claim?.hash;
      const isLive =
        isCurrent && isUnexpired(user?.resetExpiresAt ?? 0, { now: clock.now(), life: RESET_LIFE });
      // Before the work of hashing, which is for those who have a link.
      if (!claim || !user || !isLive) throw authErrors.INVALID_TOKEN();
      await newPasswords.validate(password, user.email);
      const passwordHash = await deps.passwords.hash(password, origin.isDisconnected);
      // First the mail that tells of it: it waits for the version, and a crash in between loses nothing.
      await mails.passwordChanged(user, user.passwordVersion + 1);
      const changed = await users.updateOne(
        { id: user.id, resetHash: claim.hash, suspendedAt: null },
        {
          set: { passwordHash },
          unset: [...RECOVERY_LINKS, 'keptSession'],
          inc: { passwordVersion: 1, sessionEpoch: 1 },
        },
      );
      if (!changed) throw authErrors.INVALID_TOKEN();
      await Promise.all([
        deps.foreignHashes.remove(user),
        audit.record({ event: 'password.reset', subject: user.id, ip: origin.ip }),
        throttle.trustOnly(changed.email, origin.ip),
        deps.markVerified(changed, origin),
      ]);
      deps.emit('session.revoked', { userId: user.id, scope: 'global' });
    },
  };
}

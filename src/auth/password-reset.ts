import type { Origin } from '../http/scope.js';
import { isUnexpired } from '../kernel/clock.js';
import type { Audit } from '../ops/audit.js';
import type { Throttle } from '../throttle/throttle.js';
import type { PasswordRules } from './credentials.js';
import type { AuthDependencies } from './dependencies.js';
import { authErrors } from './errors.js';
import { authLimits } from './limits.js';
import { newLinkToken, parseLinkToken, RESET_LINK_TTL_MS } from './link-tokens.js';
import { isDisabled, PASSWORD_BOUND_LINK_FIELDS, type UserDocument } from './store.js';
import type { Verification } from './verification.js';

/** Resets forgotten passwords by a mailed link. */
export interface PasswordReset {
  /**
   * Sends a link if the address has an account, after the response, which is the same for every address.
   * @throws RATE_LIMITED
   */
  forgotPassword(email: string, origin: Origin): Promise<void>;
  /**
   * Redeems the link, sets the new password and ends every session, in one write.
   * @throws INVALID_TOKEN, WEAK_PASSWORD, VALIDATION_ERROR, RATE_LIMITED, OVERLOADED
   */
  resetPassword(given: { token: string; password: string }, origin: Origin): Promise<void>;
}

export interface PasswordResetDependencies
  extends Pick<
    AuthDependencies,
    'users' | 'passwords' | 'foreignHashes' | 'mails' | 'emit' | 'backgroundTasks' | 'clock' | 'random'
  > {
  passwordRules: PasswordRules;
  throttle: Pick<Throttle, 'count' | 'tryCountKey' | 'trustOnly'>;
  audit: Audit;
  markVerified: Verification['markVerified'];
}

export function createPasswordReset(
  deps: PasswordResetDependencies,
): PasswordReset & { sendReset(user: UserDocument): Promise<void> } {
  const { users, mails, passwordRules, throttle, audit, clock } = deps;

  /** The link replaces previous ones, including verification links, which would confirm the current password. */
  const sendReset = async ({ id, email }: UserDocument): Promise<void> => {
    const link = newLinkToken(id, RESET_LINK_TTL_MS, deps);
    // The condition on the address prevents a link from reaching the user's former mailbox.
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
        if (user && !isDisabled(user)) await sendReset(user);
      });
    },

    async resetPassword({ token, password }, origin) {
      await throttle.count(authLimits.link, origin.ip);
      passwordRules.validateFormat(password);
      const parsed = parseLinkToken(token);
      const user = parsed && (await users.findOne({ id: parsed.userId }));
      const isCurrent = user?.resetHash === parsed?.hash;
      const isValid =
        isCurrent && isUnexpired(user?.resetExpiresAt ?? 0, { now: clock.now(), life: RESET_LINK_TTL_MS });
      // Checked before hashing, which is expensive and reserved for valid links.
      if (!parsed || !user || !isValid) throw authErrors.INVALID_TOKEN();
      await passwordRules.validateStrength(password, user.email);
      const passwordHash = await deps.passwords.hash(password, origin.isDisconnected);
      // The mail is enqueued before the change and sent only after it, so a crash in between loses nothing.
      await mails.passwordChanged(user, user.passwordVersion + 1);
      const changed = await users.updateOne(
        { id: user.id, resetHash: parsed.hash, suspendedAt: null },
        {
          set: { passwordHash },
          unset: [...PASSWORD_BOUND_LINK_FIELDS, 'keptSession'],
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

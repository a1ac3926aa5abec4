import { canonicalEmail } from '../../../core/http/mailboxes.js';
import type { RequestSource } from '../../../core/http/routes.js';
import { isUnexpired } from '../../../core/kernel/clock.js';
import { type CommitPart, decideAndCommit } from '../../../core/ops/commit.js';
import { repeatedLink } from '../../../core/ops/used-links.js';
import type { AuthDependencies } from '../dependencies.js';
import { authErrors } from '../errors.js';
import { authLimits } from '../limits.js';
import type { PasswordRules } from '../sign-in/credentials.js';
import { ALL_LINK_FIELDS, isDisabled, type UserDocument } from '../store.js';
import { newLinkToken, parseLinkToken, RESET_LINK_TTL_MS } from './link-tokens.js';
import type { Verification } from './verification.js';

export interface PasswordResetDependencies extends AuthDependencies {
  passwordRules: PasswordRules;
  verificationParts: Verification['verificationParts'];
}

/** Resets forgotten passwords by a mailed link. */
export function createPasswordReset(deps: PasswordResetDependencies) {
  const { users, mails, passwords, passwordRules, throttle, audit, commit, event, clock } = deps;

  /** The link replaces previous ones, including verification links, which would confirm the current password. */
  const sendReset = async (user: UserDocument, source?: RequestSource): Promise<void> => {
    const { id, email } = user;
    const link = newLinkToken(id, RESET_LINK_TTL_MS, deps);
    await commit([
      // The condition on the address prevents a link from reaching the user's former mailbox.
      users.changing(
        { id, email, suspendedAt: null },
        {
          set: { resetHash: link.hash, resetExpiresAt: link.expiresAt },
          unset: ['verifyHash', 'verifyExpiresAt'],
        },
      ),
      mails.passwordReset(user, link, source),
    ]);
  };

  /** Whether a link has set this password, which is still the current one. @throws RATE_LIMITED */
  const isRepetition = async (
    { usedLink, passwordHash }: UserDocument,
    hash: string,
    password: string,
    { ip, isDisconnected }: RequestSource,
  ): Promise<boolean> => {
    if (repeatedLink(usedLink, hash, clock.now())?.kind !== 'reset') return false;
    await throttle.countKey(authLimits.repetition, hash, ip);
    return (await passwords.verify(passwordHash ?? null, password, isDisconnected)).ok;
  };

  /** The use of the link of an account. */
  const partsOf = async (
    user: UserDocument,
    hash: string,
    passwordHash: string,
    source: RequestSource,
  ): Promise<CommitPart[]> => {
    const { id, email, emailVerified, resetExpiresAt: expiresAt = 0 } = user;
    return [
      users.changing(
        {
          ...{ id, email, emailVerified, resetHash: hash, suspendedAt: null },
          signInRevision: user.signInRevision ?? null,
        },
        {
          set: { passwordHash, emailVerified: true, usedLink: { kind: 'reset', hash, expiresAt } },
          unset: [...ALL_LINK_FIELDS, 'keptSession', ...(emailVerified ? [] : (['operatorRole'] as const))],
          inc: { passwordVersion: 1, sessionEpoch: 1 },
        },
      ),
      ...(emailVerified
        ? []
        : [
            ...(await deps.verificationParts({ ...user, emailVerified: true }, source)),
            // Someone else may have registered the address.
            ...(await deps.signInMethods.removal(id, source)),
          ]),
      mails.passwordChanged(user, user.passwordVersion + 1, source),
      audit.entry({ event: 'password.reset', subject: id, ip: source.ip }),
      await event('session.revoked', { userId: id, scope: 'global' }),
      await deps.foreignHashes.removing(user),
    ];
  };

  return {
    sendReset,

    /**
     * Sends a link if the address has an account, after the response, which is the same for every address.
     * @throws RATE_LIMITED
     */
    async forgotPassword(email: string, source: RequestSource) {
      const { ip } = source;
      await throttle.count(authLimits.mail, ip);
      const address = canonicalEmail(email);
      deps.backgroundTasks.run('password reset', async () => {
        if (!(await throttle.tryCountKey(authLimits.mailTo.reset, address, ip))) return;
        const user = await users.findOne({ email: address });
        await audit.recordFailure({ event: 'password.forgotten', ip, ...(user && { subject: user.id }) });
        if (user && !isDisabled(user)) await sendReset(user, source);
      });
    },

    /**
     * Redeems the link, sets the new password, verifies the address and ends every session. A repetition succeeds with the same
     * password only.
     * @throws INVALID_TOKEN, WEAK_PASSWORD, VALIDATION_ERROR, RATE_LIMITED, OVERLOADED
     */
    async resetPassword({ token, password }: { token: string; password: string }, source: RequestSource) {
      await throttle.count(authLimits.link, source.ip);
      passwordRules.validateFormat(password);
      const { userId: id, hash } = parseLinkToken(token);
      let passwordHash: string | undefined;
      const email = await decideAndCommit(commit, async () => {
        const user = await users.findOne({ id });
        if (!user || isDisabled(user)) throw authErrors.INVALID_TOKEN();
        const { email: result, resetHash, resetExpiresAt = 0 } = user;
        const life = { now: clock.now(), life: RESET_LINK_TTL_MS };
        if (resetHash !== hash || !isUnexpired(resetExpiresAt, life)) {
          if (await isRepetition(user, hash, password, source)) return { result };
          throw authErrors.INVALID_TOKEN();
        }
        await passwordRules.validateStrength(password, result);
        // Expensive, and therefore reserved for valid links.
        passwordHash ??= await passwords.hash(password, source.isDisconnected);
        return { parts: await partsOf(user, hash, passwordHash, source), result };
      });
      await Promise.all([throttle.trustOnly(email, source.ip), deps.secondFactors?.trust(id, source.ip)]);
    },
  };
}

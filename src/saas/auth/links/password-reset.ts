import { canonicalEmail } from '../../../core/http/mailboxes.js';
import type { RequestSource } from '../../../core/http/routes.js';
import { isUnexpired } from '../../../core/kernel/clock.js';
import type { LinkUse, UsedLinks } from '../../../core/ops/used-links.js';
import type { AuthDependencies } from '../dependencies.js';
import { authErrors } from '../errors.js';
import { eventIdOf, proofOfUse } from '../events.js';
import { authLimits } from '../limits.js';
import type { PasswordRules } from '../sign-in/credentials.js';
import { ALL_LINK_FIELDS, isDisabled, type UserDocument } from '../store.js';
import { newLinkToken, parseLinkToken, RESET_LINK_TTL_MS } from './link-tokens.js';
import type { Verification } from './verification.js';

export interface PasswordResetDependencies extends AuthDependencies {
  passwordRules: PasswordRules;
  usedLinks: UsedLinks<UserDocument>;
  finishVerification: Verification['finishVerification'];
}

/** Resets forgotten passwords by a mailed link. */
export function createPasswordReset(deps: PasswordResetDependencies) {
  const { users, mails, passwords, passwordRules, throttle, audit, usedLinks, clock } = deps;

  /** The link replaces previous ones, including verification links, which would confirm the current password. */
  const sendReset = async ({ id, email }: UserDocument, source?: RequestSource): Promise<void> => {
    const link = newLinkToken(id, RESET_LINK_TTL_MS, deps);
    // The condition on the address prevents a link from reaching the user's former mailbox.
    const owner = await users.updateOne(
      { id, email, suspendedAt: null },
      {
        set: { resetHash: link.hash, resetExpiresAt: link.expiresAt },
        unset: ['verifyHash', 'verifyExpiresAt'],
      },
    );
    if (owner) await deps.commit([mails.passwordReset(owner, link, source)]);
  };

  /** Sets the password and marks the link as used. `null` if the link is not valid. */
  const useLink = async (
    user: UserDocument,
    use: LinkUse,
    password: string,
    source: RequestSource,
  ): Promise<UserDocument | null> => {
    const { id, email, resetHash, resetExpiresAt: expiresAt = 0 } = user;
    const { usedLinkHash, unansweredSince } = use;
    // Checked before hashing, which is expensive and reserved for valid links.
    const isValid = isUnexpired(expiresAt, { now: clock.now(), life: RESET_LINK_TTL_MS });
    if (resetHash !== usedLinkHash || !isValid) return null;
    await passwordRules.validateStrength(password, email);
    const passwordHash = await passwords.hash(password, source.isDisconnected);
    const addressVerified = !user.emailVerified;
    // Someone else may have registered the address. Nothing more is added before it is verified.
    if (addressVerified) await deps.signInMethods.remove(id, source);
    const usedLink = { kind: 'reset', expiresAt, passwordChanged: true, addressVerified } as const;
    const event = { id: eventIdOf(use), userId: id };
    const proof = proofOfUse(id, usedLinkHash);
    if (addressVerified) {
      const verified = deps.presentUser({ ...user, emailVerified: true });
      await deps.announceEvent('user.verified', { ...event, user: verified }, proof);
    }
    await deps.announceEvent('session.revoked', { ...event, scope: 'global' }, proof);
    const changed = await users.updateOne(
      { id, email, resetHash, suspendedAt: null },
      {
        set: { passwordHash, emailVerified: true, usedLinkHash, usedLink, unansweredSince },
        unset: [...ALL_LINK_FIELDS, 'keptSession'],
        inc: { passwordVersion: 1, sessionEpoch: 1 },
      },
    );
    if (!changed) return null;
    await deps.commit([mails.passwordChanged(user, user.passwordVersion + 1, source)]);
    await deps.foreignHashes.remove(user);
    return changed;
  };

  const finishTakeOver = async (user: UserDocument, source: RequestSource): Promise<void> => {
    // Again, because a request of the stranger may have been under way.
    await deps.signInMethods.remove(user.id, source);
    await deps.finishVerification(user, source);
  };

  /** The user whose password a failed request with this link has changed to `password`; `null` otherwise. */
  const findChanged = async (
    use: LinkUse,
    password: string,
    { ip, isDisconnected }: RequestSource,
  ): Promise<UserDocument | null> => {
    const user = await usedLinks.findUnanswered(use);
    if (user?.usedLink?.kind !== 'reset') return null;
    await throttle.countKey(authLimits.repetition, use.usedLinkHash, ip);
    const { ok } = await passwords.verify(user.passwordHash ?? null, password, isDisconnected);
    return ok ? user : null;
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
     * Redeems the link, sets the new password, verifies the address and ends every session, in one write. A repetition of
     * a request that has failed after that succeeds with the same password only.
     * @throws INVALID_TOKEN, WEAK_PASSWORD, VALIDATION_ERROR, RATE_LIMITED, OVERLOADED
     */
    async resetPassword({ token, password }: { token: string; password: string }, source: RequestSource) {
      await throttle.count(authLimits.link, source.ip);
      passwordRules.validateFormat(password);
      const parsed = parseLinkToken(token);
      const user = parsed && (await users.findOne({ id: parsed.userId }));
      if (!parsed || !user) throw authErrors.INVALID_TOKEN();
      const use = usedLinks.begin(user.id, parsed.hash);
      await usedLinks.complete(use, async () => {
        const changed =
          (await useLink(user, use, password, source)) ?? (await findChanged(use, password, source));
        if (!changed) throw authErrors.INVALID_TOKEN();
        await Promise.all([
          audit.record({ event: 'password.reset', subject: user.id, ip: source.ip }),
          throttle.trustOnly(changed.email, source.ip),
          deps.secondFactors?.trust(user.id, source.ip),
          changed.usedLink?.addressVerified && finishTakeOver(changed, source),
        ]);
        await deps.emit('session.revoked', { id: eventIdOf(use), userId: user.id, scope: 'global' });
      });
    },
  };
}

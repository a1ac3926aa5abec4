import { canonicalEmail } from '../../../core/http/mailboxes.js';
import type { RequestSource } from '../../../core/http/routes.js';
import type { CommitPart } from '../../../core/ops/commit.js';
import type { AuthDependencies } from '../dependencies.js';
import { authLimits } from '../limits.js';
import { isDisabled, type UserDocument } from '../store.js';
import { newLinkToken, VERIFICATION_LINK_TTL_MS } from './link-tokens.js';

/** Links that verify e-mail addresses, and what follows from a verification. */
export type Verification = ReturnType<typeof createVerification>;

export function createVerification(deps: AuthDependencies) {
  const { users, mails, throttle, audit, commit, event } = deps;

  /** Sends a link that replaces the previous one. */
  const sendVerification = async ({ id, email, locale }: UserDocument): Promise<void> => {
    const link = newLinkToken(id, VERIFICATION_LINK_TTL_MS, deps);
    const set = { verifyHash: link.hash, verifyExpiresAt: link.expiresAt };
    await commit([
      users.changing({ id, email, suspendedAt: null }, { set }),
      mails.verifyEmail({ id, email, locale }, link),
    ]);
  };

  return {
    sendVerification,

    /** What follows from the verification of an address, for its commit. @param user after it */
    async verificationParts(user: UserDocument, { ip }: RequestSource): Promise<CommitPart[]> {
      return [
        audit.entry({ event: 'email.verified', subject: user.id, ip }),
        // Without required verification, registration has sent the welcome mail already.
        deps.verificationRequired ? mails.welcome(user) : undefined,
        await event('user.verified', { userId: user.id, user: deps.presentUser(user) }),
      ];
    },

    /** Sends a new link to an unverified address, after the response, which is always the same. @throws RATE_LIMITED */
    async resendVerification(email: string, { ip }: RequestSource) {
      await throttle.count(authLimits.mail, ip);
      const address = canonicalEmail(email);
      deps.backgroundTasks.run('verification', async () => {
        const user = await users.findOne({ email: address });
        if (!user || user.emailVerified || isDisabled(user)) return;
        // Only sent mails count, because requests must not use up the limit of an address before it has an account.
        if (await throttle.tryCountKey(authLimits.mailTo.verify, address, ip)) await sendVerification(user);
      });
    },
  };
}

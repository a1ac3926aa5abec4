import type { Origin } from '../http/scope.js';
import { isUnexpired } from '../kernel/clock.js';
import type { Audit } from '../ops/audit.js';
import type { Change } from '../storage/collection.js';
import type { Throttle } from '../throttle/throttle.js';
import type { ConfirmAddress, ConfirmationProof } from './confirmation.js';
import type { AuthDependencies } from './dependencies.js';
import type { EmailChange } from './email-change.js';
import { authErrors } from './errors.js';
import { authLimits } from './limits.js';
import { newLinkToken, readLinkToken, VERIFY_LIFE } from './links.js';
import { isClosed, type UserDocument } from './store.js';

/** Whether an address is its user's: proved by a link that was sent to it. */
export interface Verification {
  /**
   * Uses a link: the address counts as confirmed, or, if the link belongs to a change, becomes the address of the
   * account. A password that is not the current one replaces it and ends every session.
   * @throws INVALID_TOKEN, EMAIL_TAKEN, RATE_LIMITED, and what `ConfirmAddress` throws
   */
  verifyEmail(
    given: { token: string } & ConfirmationProof,
    origin: Origin,
  ): Promise<{ passwordChanged: boolean }>;
  /** Sends a new link if one is missing, after the answer, which is always the same. @throws RATE_LIMITED */
  resendVerification(email: string, origin: Origin): Promise<void>;
  /** Sends a link that takes the place of an older one. */
  sendVerification(user: UserDocument): Promise<void>;
  /** The address proved to be theirs in another way. */
  markVerified(user: Pick<UserDocument, 'id' | 'email'>, origin: Origin): Promise<void>;
}

export interface VerificationDependencies
  extends Pick<
    AuthDependencies,
    'users' | 'mails' | 'emit' | 'viewOf' | 'backgroundTasks' | 'clock' | 'random' | 'verificationRequired'
  > {
  throttle: Pick<Throttle, 'count' | 'tryCountKey' | 'trustOnly'>;
  audit: Audit;
  confirmAddress: ConfirmAddress;
  confirmChange: EmailChange['confirmChange'];
}

const VERIFY_LINK = ['verifyHash', 'verifyExpiresAt'] as const;

const VERIFIED: Change<UserDocument> = { set: { emailVerified: true }, unset: VERIFY_LINK };

export function createVerification(deps: VerificationDependencies): Verification {
  const { users, mails, throttle, audit, clock } = deps;

  const afterVerifying = async (user: UserDocument, { ip }: Origin): Promise<void> => {
    await Promise.all([
      audit.record({ event: 'email.verified', subject: user.id, ip }),
      throttle.trustOnly(user.email, ip),
      // Where the link is the way in, this is the moment to be welcome.
      deps.verificationRequired ? mails.welcome(user) : undefined,
    ]);
    deps.emit('user.verified', { userId: user.id, user: await deps.viewOf(user) });
  };

  const sendVerification: Verification['sendVerification'] = async ({ id, email }) => {
    const link = newLinkToken(id, VERIFY_LIFE, deps);
    const set = { verifyHash: link.hash, verifyExpiresAt: link.expiresAt };
    if (await users.updateOne({ id, email, suspendedAt: null }, { set }))
      await mails.verifyEmail({ id, email }, link);
  };

  return {
    sendVerification,

    async verifyEmail({ token, ...proof }, origin) {
      await throttle.count(authLimits.link, origin.ip);
      const claim = readLinkToken(token);
      const user = claim && (await users.findOne({ id: claim.userId }));
      if (!claim || !user) throw authErrors.INVALID_TOKEN();
      if (user.verifyHash !== claim.hash) return deps.confirmChange(user, claim.hash, proof, origin);
      const isLive = isUnexpired(user.verifyExpiresAt ?? 0, { now: clock.now(), life: VERIFY_LIFE });
      if (!isLive) throw authErrors.INVALID_TOKEN();
      const link = { verifyHash: claim.hash, emailVerified: false };
      const { email } = user;
      const confirmed = await deps.confirmAddress(user, proof, { link, email, unset: VERIFY_LINK }, origin);
      if (!confirmed) throw authErrors.INVALID_TOKEN();
      await afterVerifying(confirmed.user, origin);
      return { passwordChanged: confirmed.passwordChanged };
    },

    async resendVerification(email, { ip }) {
      await throttle.count(authLimits.mail, ip);
      const address = email.toLowerCase();
      deps.backgroundTasks.run('verification', async () => {
        const user = await users.findOne({ email: address });
        if (!user || user.emailVerified || isClosed(user)) return;
        // Only what is sent counts: an address must not have used up its mails before it has an account.
        if (await throttle.tryCountKey(authLimits.mailTo.verify, address, ip)) await sendVerification(user);
      });
    },

    async markVerified({ id, email }, origin) {
      const verified = await users.updateOne({ id, email, emailVerified: false }, VERIFIED);
      if (verified) await afterVerifying(verified, origin);
    },
  };
}

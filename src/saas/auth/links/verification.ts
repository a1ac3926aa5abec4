import { canonicalEmail } from '../../../core/http/mailboxes.js';
import type { RequestSource } from '../../../core/http/routes.js';
import { isUnexpired } from '../../../core/kernel/clock.js';
import type { LinkUse, UsedLinks } from '../../../core/ops/used-links.js';
import type { AuthDependencies } from '../dependencies.js';
import { authErrors } from '../errors.js';
import { eventIdOf } from '../events.js';
import { authLimits } from '../limits.js';
import { isDisabled, type UserDocument } from '../store.js';
import type { AccountProof, AddressConfirmation, ConfirmedUser } from './confirm-address.js';
import type { EmailChange } from './email-change.js';
import { newLinkToken, parseLinkToken, VERIFICATION_LINK_TTL_MS } from './link-tokens.js';

/** Verification of e-mail addresses by mailed links. */
export type Verification = ReturnType<typeof createVerification>;

export interface VerificationDependencies extends AuthDependencies {
  confirmation: AddressConfirmation;
  emailChange: EmailChange;
  usedLinks: UsedLinks<UserDocument>;
}

const VERIFICATION_LINK_FIELDS = ['verifyHash', 'verifyExpiresAt'] as const;

export function createVerification(deps: VerificationDependencies) {
  const { users, mails, throttle, audit, confirmation, emailChange, usedLinks, clock } = deps;

  /** Completes a verification that is stored, also one by another kind of link. */
  const finishVerification = async (user: UserDocument, { ip }: RequestSource) => {
    await Promise.all([
      audit.record({ event: 'email.verified', subject: user.id, ip }),
      throttle.trustOnly(user.email, ip),
      // Without required verification, registration has sent the welcome mail already.
      deps.verificationRequired ? deps.commit([mails.welcome(user)]) : undefined,
    ]);
    const event = { id: eventIdOf(user), userId: user.id, user: deps.presentUser(user) };
    await deps.emit('user.verified', event);
  };

  /** Sends a link that replaces the previous one. */
  const sendVerification = async ({ id, email, locale }: UserDocument) => {
    const link = newLinkToken(id, VERIFICATION_LINK_TTL_MS, deps);
    const set = { verifyHash: link.hash, verifyExpiresAt: link.expiresAt };
    if (await users.updateOne({ id, email, suspendedAt: null }, { set }))
      await deps.commit([mails.verifyEmail({ id, email, locale }, link)]);
  };

  /** Redeems a link; `null` if it is not valid. */
  const useLink = async (
    user: UserDocument,
    use: LinkUse,
    proof: AccountProof,
    source: RequestSource,
  ): Promise<ConfirmedUser | null> => {
    const { email, verifyHash, verifyExpiresAt: expiresAt = 0 } = user;
    if (verifyHash !== use.usedLinkHash) return emailChange.confirmEmailChange(user, use, proof, source);
    if (!isUnexpired(expiresAt, { now: clock.now(), life: VERIFICATION_LINK_TTL_MS })) return null;
    const link = { verifyHash, emailVerified: false };
    const given = { kind: 'verify', link, use, expiresAt, email, unset: VERIFICATION_LINK_FIELDS } as const;
    return confirmation.confirmAddress(user, proof, given, source);
  };

  return {
    sendVerification,
    finishVerification,

    /**
     * Redeems a link: it verifies the address or, for the link of an address change, sets the new address.
     * A password that is not the current one replaces it and ends every session. A repetition of a request that has
     * failed after that succeeds with a proof that is valid now.
     * @throws INVALID_TOKEN, EMAIL_TAKEN, RATE_LIMITED, and what `confirmAddress` throws
     */
    async verifyEmail(
      { token, ...proof }: { token: string } & AccountProof,
      source: RequestSource,
    ): Promise<{ passwordChanged: boolean }> {
      await throttle.count(authLimits.link, source.ip);
      const parsed = parseLinkToken(token);
      const user = parsed && (await users.findOne({ id: parsed.userId }));
      if (!parsed || !user) throw authErrors.INVALID_TOKEN();
      const use = usedLinks.begin(user.id, parsed.hash);
      return usedLinks.complete(use, async () => {
        const confirmed =
          (await useLink(user, use, proof, source)) ?? (await confirmation.findConfirmed(use, proof, source));
        if (!confirmed) throw authErrors.INVALID_TOKEN();
        await confirmation.finishPasswordChange(confirmed, source);
        const { kind, passwordChanged } = confirmed.usedLink;
        if (kind === 'change') await emailChange.finishEmailChange(confirmed, source);
        else await finishVerification(confirmed, source);
        return { passwordChanged };
      });
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

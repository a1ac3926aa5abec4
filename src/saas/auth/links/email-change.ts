import type { Identity } from '../../../core/http/identity.js';
import { canonicalEmail } from '../../../core/http/mailboxes.js';
import type { RequestSource } from '../../../core/http/routes.js';
import { isUnexpired } from '../../../core/kernel/clock.js';
import { httpErrors } from '../../../core/kernel/errors.js';
import type { LinkUse } from '../../../core/ops/used-links.js';
import { UniqueViolation } from '../../../core/storage/collection.js';
import type { AuthDependencies } from '../dependencies.js';
import { authErrors } from '../errors.js';
import { eventIdOf } from '../events.js';
import { authLimits } from '../limits.js';
import type { Credentials } from '../sign-in/credentials.js';
import { requireRecent } from '../sign-in/recent-auth.js';
import { ALL_LINK_FIELDS, type UserDocument } from '../store.js';
import type { AccountProof, AddressConfirmation, ConfirmedUser } from './confirm-address.js';
import { newLinkToken, VERIFICATION_LINK_TTL_MS } from './link-tokens.js';

/** Changes the address of an account once a link sent to the new address is followed. */
export type EmailChange = ReturnType<typeof createEmailChange>;

export interface EmailChangeDependencies extends AuthDependencies {
  credentials: Credentials;
  confirmAddress: AddressConfirmation['confirmAddress'];
}

export function createEmailChange(deps: EmailChangeDependencies) {
  const { users, mails, credentials, throttle, audit, clock } = deps;
  const isTaken = async (email: string) => (await users.findOne({ email })) !== null;

  return {
    /**
     * Sends the link to the new address. An account with a second factor needs a recent sign-in, too.
     * @throws INVALID_CREDENTIALS, REAUTHENTICATION_REQUIRED, EMAIL_TAKEN, VALIDATION_ERROR, RATE_LIMITED, OVERLOADED
     */
    async changeEmail(
      identity: Identity,
      given: { email: string; password?: string | undefined },
      source: RequestSource,
    ) {
      const { id, email } = identity.user;
      const newEmail = canonicalEmail(given.email);
      if (newEmail === email) {
        const message = 'is already your address';
        throw httpErrors.VALIDATION_ERROR({ details: [{ path: 'email', message }] });
      }
      const user = await credentials.verifyOwner(identity, given.password, source, 'email.change-refused');
      // A link with a new password at the new address removes the second factor.
      if (await deps.secondFactors?.stateOf(id)) requireRecent(identity, {}, clock);
      await throttle.count(authLimits.mail, source.ip);
      // With required verification, no response may disclose which addresses have an account.
      if (!deps.verificationRequired && (await isTaken(newEmail))) throw authErrors.EMAIL_TAKEN();
      // Counted before the link is stored, because storing a link invalidates the previous one, even if the new one is
      // not sent.
      if (!(await throttle.tryCountKey(authLimits.mailTo.change, newEmail, source.ip))) return;
      const link = newLinkToken(id, VERIFICATION_LINK_TTL_MS, deps);
      const updated = await users.updateOne(
        { id, email, passwordVersion: user.passwordVersion, suspendedAt: null },
        { set: { newEmail, changeHash: link.hash, changeExpiresAt: link.expiresAt } },
      );
      if (!updated) throw authErrors.INVALID_CREDENTIALS();
      await audit.record({ event: 'email.change-asked', subject: id, ip: source.ip });
      deps.backgroundTasks.run('e-mail change', async () => {
        if (!(await isTaken(newEmail)))
          await deps.commit([mails.confirmAddressChange({ id, email: newEmail, locale: user.locale }, link)]);
      });
    },

    async confirmEmailChange(
      user: UserDocument,
      use: LinkUse,
      proof: AccountProof,
      source: RequestSource,
    ): Promise<ConfirmedUser | null> {
      const { newEmail, changeHash, changeExpiresAt: expiresAt = 0 } = user;
      const isValid = isUnexpired(expiresAt, { now: clock.now(), life: VERIFICATION_LINK_TTL_MS });
      if (newEmail === undefined || changeHash !== use.usedLinkHash || !isValid) return null;
      const change = {
        kind: 'change',
        link: { changeHash },
        use,
        expiresAt,
        email: newEmail,
        unset: ALL_LINK_FIELDS,
        inc: { emailVersion: 1, profileVersion: 1 },
        notice: mails.emailChanged(user, newEmail, (user.emailVersion ?? 0) + 1, source),
      } as const;
      // The unique index decides when two accounts want the same address.
      return deps.confirmAddress(user, proof, change, source).catch((error: unknown) => {
        throw error instanceof UniqueViolation ? authErrors.EMAIL_TAKEN() : error;
      });
    },

    async finishEmailChange(user: ConfirmedUser, { ip }: RequestSource) {
      deps.profileChanged();
      await Promise.all([
        audit.record({ event: 'email.changed', subject: user.id, ip }),
        throttle.trustOnly(user.email, ip),
      ]);
      const event = { id: eventIdOf(user), userId: user.id, user: deps.presentUser(user) };
      await deps.emit('user.updated', event);
      if (user.usedLink.addressVerified) await deps.emit('user.verified', event);
    },
  };
}

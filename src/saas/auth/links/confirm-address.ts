import type { RequestSource } from '../../../core/http/routes.js';
import { httpErrors } from '../../../core/kernel/errors.js';
import type { Effect } from '../../../core/ops/commit.js';
import type { LinkUse, UsedLinks } from '../../../core/ops/used-links.js';
import { PASSWORD_PROBLEMS } from '../../../core/passwords/problems.js';
import type { Where } from '../../../core/storage/collection.js';
import type { AuthDependencies } from '../dependencies.js';
import { authErrors } from '../errors.js';
import { eventIdOf, proofOfUse } from '../events.js';
import { authLimits } from '../limits.js';
import type { SessionService } from '../sessions/sessions.js';
import type { PasswordRules } from '../sign-in/credentials.js';
import { ALL_LINK_FIELDS, type UsedLink, type UserDocument } from '../store.js';

/** The proof of account ownership that is sent with a link. */
export interface AccountProof {
  /** The current password of the account, or a new one that replaces it. */
  password?: string;
  /** An Authorization header with an access token. Ignored when there is a password. */
  authorization?: string;
  /** The user who has just signed in by other means. Ignored when there is a password. */
  signedIn?: string;
}

export type AddressConfirmation = ReturnType<typeof createAddressConfirmation>;

export interface Confirmation {
  kind: 'verify' | 'change';
  /** Selects the user by the hash of the link, so that a link works once. */
  link: Where<UserDocument>;
  use: LinkUse;
  expiresAt: number;
  email: string;
  /** The links that end with a confirmation by the holder of the account. */
  unset: readonly (typeof ALL_LINK_FIELDS)[number][];
  inc?: { emailVersion: number };
  /** The mail about the change. */
  notice?: Effect;
}

export type ConfirmedUser = UserDocument & { usedLink: UsedLink };

export interface AddressConfirmationDependencies extends AuthDependencies {
  passwordRules: PasswordRules;
  authenticate: SessionService['authenticate'];
  usedLinks: UsedLinks<UserDocument>;
}

export function createAddressConfirmation(deps: AddressConfirmationDependencies) {
  const { users, passwords, passwordRules, mails, throttle, audit, emit, usedLinks } = deps;

  /** @throws VALIDATION_ERROR without a session of this user, UNAUTHENTICATED, TOKEN_EXPIRED */
  const requireSession = async (
    { id }: UserDocument,
    { authorization, signedIn }: AccountProof,
  ): Promise<void> => {
    if (signedIn === id) return;
    if (signedIn !== undefined) throw authErrors.INVALID_TOKEN();
    const identity = authorization === undefined ? null : await deps.authenticate(authorization);
    if (identity?.user.id === id) return;
    throw httpErrors.VALIDATION_ERROR({
      details: [{ path: 'password', message: PASSWORD_PROBLEMS.missing }],
    });
  };

  /** The state of the account that the proof depends on, or the hash of the new password. */
  const verifyProof = async (
    user: UserDocument,
    proof: AccountProof,
    email: string,
    { isDisconnected }: RequestSource,
  ): Promise<{ precondition: Where<UserDocument> } | { passwordHash: string }> => {
    const { passwordVersion, sessionEpoch } = user;
    const { password } = proof;
    if (password === undefined) {
      await requireSession(user, proof);
      return { precondition: { passwordVersion, sessionEpoch } };
    }
    // Validated before the comparison, so that an error does not disclose whether the password is the current one.
    passwordRules.validateFormat(password);
    await passwordRules.validateStrength(password, email);
    const { ok } = await passwords.verify(user.passwordHash ?? null, password, isDisconnected);
    if (ok) return { precondition: { passwordVersion } };
    return { passwordHash: await passwords.hash(password, isDisconnected) };
  };

  return {
    /**
     * Confirms an address. A link proves access to the mailbox, but not ownership of the account: only a session or
     * the current password does. Any other password becomes the new one, and the same write ends every session and
     * link of the previous holder.
     *
     * @returns the user after the change, or `null` when the link was redeemed or replaced in the meantime
     * @throws VALIDATION_ERROR (also without any proof), WEAK_PASSWORD, INVALID_TOKEN for another user than `signedIn`,
     *   UNAUTHENTICATED, TOKEN_EXPIRED, OVERLOADED
     */
    async confirmAddress(
      user: UserDocument,
      proof: AccountProof,
      confirmation: Confirmation,
      source: RequestSource,
    ): Promise<ConfirmedUser | null> {
      const { kind, link, use, expiresAt, email, unset, inc, notice } = confirmation;
      const verified = await verifyProof(user, proof, email, source);
      const passwordChanged = 'passwordHash' in verified;
      const where = { ...link, id: user.id, suspendedAt: null };
      const usedLink = { kind, expiresAt, passwordChanged, addressVerified: !user.emailVerified };
      const isChange = email !== user.email;
      const set = {
        email,
        emailVerified: true,
        usedLinkHash: use.usedLinkHash,
        usedLink,
        unansweredSince: use.unansweredSince,
        ...(isChange && deps.profileMark()),
      };
      const event = { id: eventIdOf(use), userId: user.id };
      const wasUsed = proofOfUse(user.id, use.usedLinkHash);
      if (usedLink.addressVerified) {
        const verifiedUser = deps.presentUser({ ...user, email, emailVerified: true });
        await deps.announceEvent('user.verified', { ...event, user: verifiedUser }, wasUsed);
      }
      if (isChange) {
        const moved = deps.presentUser({ ...user, email, emailVerified: true });
        await deps.announceEvent('user.updated', { ...event, user: moved }, wasUsed);
      }
      if (!passwordChanged) {
        const confirmed = await users.updateOne(
          { ...where, ...verified.precondition },
          { set, unset, ...(inc && { inc }) },
        );
        if (!confirmed) return null;
        await deps.commit([notice]);
        return { ...confirmed, usedLink };
      }
      await deps.announceEvent('session.revoked', { ...event, scope: 'global' }, wasUsed);
      // A change of the address can still fail, and the account then keeps its owner.
      if (!isChange) await deps.signInMethods.remove(user.id, source);
      const confirmed = await users.updateOne(where, {
        set: { ...set, passwordHash: verified.passwordHash },
        unset: [...ALL_LINK_FIELDS, 'keptSession'],
        inc: { ...inc, passwordVersion: 1, sessionEpoch: 1 },
      });
      if (!confirmed) return null;
      await deps.commit([notice, mails.passwordChanged(user, user.passwordVersion + 1, source)]);
      await deps.foreignHashes.remove(user);
      return { ...confirmed, usedLink };
    },

    /**
     * The user whose address a failed request with this link has confirmed, if the proof is valid for it; `null`
     * otherwise.
     * @throws VALIDATION_ERROR without any proof, UNAUTHENTICATED, TOKEN_EXPIRED, RATE_LIMITED, OVERLOADED
     */
    async findConfirmed(
      use: LinkUse,
      proof: AccountProof,
      { ip, isDisconnected }: RequestSource,
    ): Promise<ConfirmedUser | null> {
      const user = await usedLinks.findUnanswered(use);
      const usedLink = user?.usedLink;
      if (usedLink?.kind !== 'verify' && usedLink?.kind !== 'change') return null;
      const { password } = proof;
      if (password === undefined) {
        await requireSession(user as UserDocument, proof);
      } else {
        await throttle.countKey(authLimits.repetition, use.usedLinkHash, ip);
        const { ok } = await passwords.verify(user?.passwordHash ?? null, password, isDisconnected);
        if (!ok) return null;
      }
      return { ...(user as UserDocument), usedLink };
    },

    /** Completes a confirmation that has replaced the password; does nothing after others. */
    async finishPasswordChange(user: ConfirmedUser, source: RequestSource) {
      const { id, usedLink } = user;
      if (!usedLink.passwordChanged) return;
      await deps.signInMethods.remove(id, source);
      await audit.record({ event: 'password.reset', subject: id, ip: source.ip });
      await emit('session.revoked', { id: eventIdOf(user), userId: id, scope: 'global' });
    },
  };
}

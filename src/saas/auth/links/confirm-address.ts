import type { RequestSource } from '../../../core/http/routes.js';
import { isUnexpired } from '../../../core/kernel/clock.js';
import { httpErrors } from '../../../core/kernel/errors.js';
import { type CommitPart, type Decision, decideAndCommit } from '../../../core/ops/commit.js';
import { repeatedLink } from '../../../core/ops/used-links.js';
import { PASSWORD_PROBLEMS } from '../../../core/passwords/problems.js';
import { UniqueViolation, type Where } from '../../../core/storage/collection.js';
import type { AuthDependencies } from '../dependencies.js';
import { authErrors } from '../errors.js';
import { authLimits } from '../limits.js';
import type { SessionService } from '../sessions/sessions.js';
import type { PasswordRules } from '../sign-in/credentials.js';
import { ALL_LINK_FIELDS, isDisabled, type UsedUserLink, type UserDocument } from '../store.js';
import { parseLinkToken, VERIFICATION_LINK_TTL_MS } from './link-tokens.js';
import type { Verification } from './verification.js';

/** The proof of account ownership that is sent with a link. */
export interface AccountProof {
  /** The current password of the account, or a new one that replaces it. */
  password?: string;
  /** An Authorization header with an access token. Ignored when there is a password. */
  authorization?: string;
  /** The user who has just signed in by other means. Ignored when there is a password. */
  signedIn?: string;
}

/** Confirms the address of an account, or its new address. */
export type AddressConfirmation = ReturnType<typeof createAddressConfirmation>;

/** What a link has confirmed. */
interface Confirmed {
  email: string;
  /** Whether it has replaced the password, too. */
  passwordChanged: boolean;
}

/** What a valid link confirms. */
interface Confirmation {
  kind: 'verify' | 'change';
  hash: string;
  expiresAt: number;
  email: string;
}

export interface AddressConfirmationDependencies extends AuthDependencies {
  passwordRules: PasswordRules;
  authenticate: SessionService['authenticate'];
  verificationParts: Verification['verificationParts'];
}

export function createAddressConfirmation(deps: AddressConfirmationDependencies) {
  const { users, passwords, passwordRules, mails, throttle, audit, commit, event, clock } = deps;

  /** @throws VALIDATION_ERROR without a session of this user, UNAUTHENTICATED, TOKEN_EXPIRED */
  const requireSession = async (
    { id }: UserDocument,
    { authorization, signedIn }: AccountProof,
  ): Promise<void> => {
    if (signedIn === id) return;
    if (signedIn !== undefined) throw authErrors.INVALID_TOKEN();
    const identity = authorization === undefined ? null : await deps.authenticate(authorization);
    if (identity?.session.impersonator) throw authErrors.IMPERSONATED();
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
  ): Promise<{ precondition: Where<UserDocument>; passwordHash?: string }> => {
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
    const precondition = { signInRevision: user.signInRevision ?? null };
    return { precondition, passwordHash: await passwords.hash(password, isDisconnected) };
  };

  const confirmationBy = (user: UserDocument, hash: string): Confirmation | null => {
    const { email, verifyHash, verifyExpiresAt = 0, changeHash, changeExpiresAt = 0, newEmail } = user;
    const isValid = (expiresAt: number) =>
      isUnexpired(expiresAt, { now: clock.now(), life: VERIFICATION_LINK_TTL_MS });
    if (verifyHash === hash && !user.emailVerified && isValid(verifyExpiresAt))
      return { kind: 'verify', hash, expiresAt: verifyExpiresAt, email };
    if (changeHash === hash && newEmail !== undefined && isValid(changeExpiresAt))
      return { kind: 'change', hash, expiresAt: changeExpiresAt, email: newEmail };
    return null;
  };

  /** What follows from a new password. */
  const passwordParts = async (user: UserDocument, source: RequestSource): Promise<CommitPart[]> => [
    mails.passwordChanged(user, user.passwordVersion + 1, source),
    audit.entry({ event: 'password.reset', subject: user.id, ip: source.ip }),
    await event('session.revoked', { userId: user.id, scope: 'global' }),
    await deps.foreignHashes.removing(user),
    // The account has a new owner.
    ...(await deps.signInMethods.removal(user.id, source)),
  ];

  /** What follows from a new address. */
  const addressParts = async (
    before: UserDocument,
    user: UserDocument,
    source: RequestSource,
  ): Promise<CommitPart[]> => {
    const changed = { userId: user.id, user: deps.presentUser(user) };
    return [
      mails.emailChanged(before, user.email, (before.emailVersion ?? 0) + 1, source),
      audit.entry({ event: 'email.changed', subject: user.id, ip: source.ip }),
      await event('user.updated', changed),
      before.emailVerified ? undefined : await event('user.verified', changed),
      deps.profileChanged,
    ];
  };

  /** The use of a valid link. */
  const useLink = async (
    user: UserDocument,
    { kind, hash, expiresAt, email }: Confirmation,
    proof: AccountProof,
    source: RequestSource,
  ): Promise<Decision<Confirmed>> => {
    const { id, emailVerified, profileVersion = null } = user;
    const { precondition, passwordHash } = await verifyProof(user, proof, email, source);
    const passwordChanged = passwordHash !== undefined;
    const isChange = kind === 'change';
    const confirmed = { ...user, email, emailVerified: true };
    const parts = [
      users.changing(
        { id, [`${kind}Hash`]: hash, emailVerified, profileVersion, suspendedAt: null, ...precondition },
        {
          set: {
            email,
            emailVerified: true,
            usedLink: { kind, hash, expiresAt, passwordChanged },
            ...(passwordChanged && { passwordHash }),
            ...(isChange && deps.profileMark()),
          },
          unset: [
            ...(passwordChanged || isChange ? ALL_LINK_FIELDS : VERIFICATION_LINK_FIELDS),
            ...(passwordChanged ? (['keptSession', 'operatorRole'] as const) : []),
          ],
          inc: {
            ...(passwordChanged && { passwordVersion: 1, sessionEpoch: 1 }),
            ...(isChange && { emailVersion: 1, profileVersion: 1 }),
          },
        },
      ),
      ...(passwordChanged ? await passwordParts(user, source) : []),
      ...(isChange
        ? await addressParts(user, confirmed, source)
        : await deps.verificationParts(confirmed, source)),
    ];
    return { parts, result: { email, passwordChanged } };
  };

  /**
   * The link that has confirmed the address of an account, if the proof is valid now.
   * @throws VALIDATION_ERROR without any proof, UNAUTHENTICATED, TOKEN_EXPIRED, RATE_LIMITED, OVERLOADED
   */
  const findRepetition = async (
    user: UserDocument,
    hash: string,
    proof: AccountProof,
    { ip, isDisconnected }: RequestSource,
  ): Promise<UsedUserLink | null> => {
    const used = repeatedLink(user.usedLink, hash, clock.now());
    if (!user.emailVerified || (used?.kind !== 'verify' && used?.kind !== 'change')) return null;
    const { password } = proof;
    if (password === undefined) {
      await requireSession(user, proof);
      return used;
    }
    await throttle.countKey(authLimits.repetition, hash, ip);
    const { ok } = await passwords.verify(user.passwordHash ?? null, password, isDisconnected);
    return ok ? used : null;
  };

  return {
    /**
     * Redeems a link: it verifies the address or, for the link of an address change, sets the new address. A link proves access
     * to the mailbox, but not ownership of the account: only a session or the current password does. Any other password becomes
     * the new one, and ends every session and link of the previous holder. A repetition succeeds with a proof that is valid now.
     * @throws INVALID_TOKEN, also for another user than `signedIn`; VALIDATION_ERROR, also without any proof; EMAIL_TAKEN,
     *   WEAK_PASSWORD, UNAUTHENTICATED, TOKEN_EXPIRED, RATE_LIMITED, OVERLOADED
     */
    async verifyEmail(
      { token, ...proof }: { token: string } & AccountProof,
      source: RequestSource,
    ): Promise<{ passwordChanged: boolean }> {
      await throttle.count(authLimits.link, source.ip);
      const { userId: id, hash } = parseLinkToken(token);
      const { email, passwordChanged } = await decideAndCommit<Confirmed>(commit, async () => {
        const user = await users.findOne({ id });
        if (!user || isDisabled(user)) throw authErrors.INVALID_TOKEN();
        const confirmation = confirmationBy(user, hash);
        if (confirmation) return useLink(user, confirmation, proof, source);
        const used = await findRepetition(user, hash, proof, source);
        if (!used) throw authErrors.INVALID_TOKEN();
        return { result: { email: user.email, passwordChanged: used.passwordChanged === true } };
      }).catch((error: unknown) => {
        // The unique index decides when two accounts want the same address.
        throw error instanceof UniqueViolation ? authErrors.EMAIL_TAKEN() : error;
      });
      await throttle.trustOnly(email, source.ip);
      return { passwordChanged };
    },
  };
}

const VERIFICATION_LINK_FIELDS = ['verifyHash', 'verifyExpiresAt'] as const;

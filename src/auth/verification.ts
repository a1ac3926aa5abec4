import type { Origin } from '../http/scope.js';
import { isUnexpired } from '../kernel/clock.js';
import { httpErrors } from '../kernel/errors.js';
import type { Audit } from '../ops/audit.js';
import type { Where } from '../storage/collection.js';
import type { Throttle } from '../throttle/throttle.js';
import type { PasswordRules } from './credentials.js';
import type { AuthDependencies } from './dependencies.js';
import { authErrors } from './errors.js';
import { authLimits } from './limits.js';
import { newLinkToken, parseLinkToken, VERIFICATION_LINK_TTL_MS } from './link-tokens.js';
import type { SessionService } from './sessions.js';
import { ALL_LINK_FIELDS, isDisabled, type UserDocument } from './store.js';

/** Verification of e-mail addresses by mailed links. */
export interface Verification {
  /**
   * Redeems a link: it verifies the address or, for the link of an address change, sets the new address.
   * A password that is not the current one replaces it and ends every session.
   * @throws INVALID_TOKEN, EMAIL_TAKEN, RATE_LIMITED, and what `ConfirmAddress` throws
   */
  verifyEmail(given: { token: string } & AccountProof, origin: Origin): Promise<{ passwordChanged: boolean }>;
  /** Sends a new link to an unverified address, after the response, which is always the same. @throws RATE_LIMITED */
  resendVerification(email: string, origin: Origin): Promise<void>;
  /** Sends a link that replaces the previous one. */
  sendVerification(user: UserDocument): Promise<void>;
  /** Marks an address as verified after another proof of access to the mailbox. */
  markVerified(user: Pick<UserDocument, 'id' | 'email'>, origin: Origin): Promise<void>;
}

/** The proof of account ownership that is sent with a link. */
export interface AccountProof {
  /** The current password of the account, or a new one that replaces it. */
  password?: string;
  /** An Authorization header with an access token. Ignored when there is a password. */
  authorization?: string;
}

/** Redeems the link of an address change; declared here because such links arrive at the same endpoint. */
export type ConfirmEmailChange = (
  user: UserDocument,
  hash: string,
  proof: AccountProof,
  origin: Origin,
) => Promise<{ passwordChanged: boolean }>;

export interface VerificationDependencies
  extends Pick<
    AuthDependencies,
    | 'users'
    | 'mails'
    | 'emit'
    | 'presentUser'
    | 'backgroundTasks'
    | 'clock'
    | 'random'
    | 'verificationRequired'
  > {
  throttle: Pick<Throttle, 'count' | 'tryCountKey' | 'trustOnly'>;
  audit: Audit;
  confirmAddress: ConfirmAddress;
  confirmEmailChange: ConfirmEmailChange;
}

const VERIFICATION_LINK_FIELDS = ['verifyHash', 'verifyExpiresAt'] as const;

export function createVerification(deps: VerificationDependencies): Verification {
  const { users, mails, throttle, audit, clock } = deps;

  const finishVerification = async (user: UserDocument, { ip }: Origin): Promise<void> => {
    await Promise.all([
      audit.record({ event: 'email.verified', subject: user.id, ip }),
      throttle.trustOnly(user.email, ip),
      // Without required verification, registration has sent the welcome mail already.
      deps.verificationRequired ? mails.welcome(user) : undefined,
    ]);
    deps.emit('user.verified', { userId: user.id, user: await deps.presentUser(user) });
  };

  const sendVerification: Verification['sendVerification'] = async ({ id, email }) => {
    const link = newLinkToken(id, VERIFICATION_LINK_TTL_MS, deps);
    const set = { verifyHash: link.hash, verifyExpiresAt: link.expiresAt };
    if (await users.updateOne({ id, email, suspendedAt: null }, { set }))
      await mails.verifyEmail({ id, email }, link);
  };

  return {
    sendVerification,

    async verifyEmail({ token, ...proof }, origin) {
      await throttle.count(authLimits.link, origin.ip);
      const parsed = parseLinkToken(token);
      const user = parsed && (await users.findOne({ id: parsed.userId }));
      if (!parsed || !user) throw authErrors.INVALID_TOKEN();
      if (user.verifyHash !== parsed.hash) return deps.confirmEmailChange(user, parsed.hash, proof, origin);
      const isValid = isUnexpired(user.verifyExpiresAt ?? 0, {
        now: clock.now(),
        life: VERIFICATION_LINK_TTL_MS,
      });
      if (!isValid) throw authErrors.INVALID_TOKEN();
      const confirmed = await deps.confirmAddress(
        user,
        proof,
        {
          link: { verifyHash: parsed.hash, emailVerified: false },
          email: user.email,
          unset: VERIFICATION_LINK_FIELDS,
        },
        origin,
      );
      if (!confirmed) throw authErrors.INVALID_TOKEN();
      await finishVerification(confirmed.user, origin);
      return { passwordChanged: confirmed.passwordChanged };
    },

    async resendVerification(email, { ip }) {
      await throttle.count(authLimits.mail, ip);
      const address = email.toLowerCase();
      deps.backgroundTasks.run('verification', async () => {
        const user = await users.findOne({ email: address });
        if (!user || user.emailVerified || isDisabled(user)) return;
        // Only sent mails count, because requests must not use up the limit of an address before it has an account.
        if (await throttle.tryCountKey(authLimits.mailTo.verify, address, ip)) await sendVerification(user);
      });
    },

    async markVerified({ id, email }, origin) {
      const verified = await users.updateOne(
        { id, email, emailVerified: false },
        { set: { emailVerified: true }, unset: VERIFICATION_LINK_FIELDS },
      );
      if (verified) await finishVerification(verified, origin);
    },
  };
}

/**
 * Confirms an address. A link proves access to the mailbox, but not ownership of the account: only a session or
 * the current password does. Any other password becomes the new one, and the same write ends every session and
 * link of the previous holder.
 *
 * @returns the user after the change, or `null` when the link was redeemed or replaced in the meantime
 * @throws VALIDATION_ERROR (also without any proof), WEAK_PASSWORD, UNAUTHENTICATED, TOKEN_EXPIRED, OVERLOADED
 */
export type ConfirmAddress = (
  user: UserDocument,
  proof: AccountProof,
  confirmation: {
    /** Selects the user by the hash of the link, so that a link works once. */
    link: Where<UserDocument>;
    email: string;
    /** The links that end with a confirmation by the holder of the account. */
    unset: readonly (typeof ALL_LINK_FIELDS)[number][];
    inc?: { emailVersion: number };
    /** Enqueues the mails about the change, which are sent only after it is stored. */
    enqueueNotices?(): Promise<void>;
  },
  origin: Origin,
) => Promise<{ user: UserDocument; passwordChanged: boolean } | null>;

export interface ConfirmAddressDependencies
  extends Pick<AuthDependencies, 'users' | 'passwords' | 'foreignHashes' | 'mails' | 'emit' | 'profileMark'> {
  passwordRules: PasswordRules;
  audit: Audit;
  authenticate: SessionService['authenticate'];
}

export function createConfirmAddress(deps: ConfirmAddressDependencies): ConfirmAddress {
  const { users, passwords, passwordRules, mails, audit, emit } = deps;

  /** The state of the account that the proof depends on, or the hash of the new password. */
  const verifyProof = async (
    user: UserDocument,
    { password, authorization }: AccountProof,
    email: string,
    { isDisconnected }: Origin,
  ): Promise<{ precondition: Where<UserDocument> } | { passwordHash: string }> => {
    const { passwordVersion, sessionEpoch } = user;
    if (password === undefined) {
      const identity = authorization === undefined ? null : await deps.authenticate(authorization);
      if (identity?.user.id === user.id) return { precondition: { passwordVersion, sessionEpoch } };
      const message = 'is required: the current password of the account or a new one';
      throw httpErrors.VALIDATION_ERROR({ details: [{ path: 'password', message }] });
    }
    // Validated before the comparison, so that an error does not disclose whether the password is the current one.
    passwordRules.validateFormat(password);
    await passwordRules.validateStrength(password, email);
    const { ok } = await passwords.verify(user.passwordHash ?? null, password, isDisconnected);
    if (ok) return { precondition: { passwordVersion } };
    return { passwordHash: await passwords.hash(password, isDisconnected) };
  };

  return async (user, proof, { link, email, unset, inc, enqueueNotices }, origin) => {
    const verified = await verifyProof(user, proof, email, origin);
    const where = { ...link, id: user.id, suspendedAt: null };
    const isChange = email !== user.email;
    const set = { email, emailVerified: true, ...(isChange && deps.profileMark()) };
    // The mails are enqueued before the change and sent only after it, so a crash in between loses nothing.
    await enqueueNotices?.();
    if ('precondition' in verified) {
      const confirmed = await users.updateOne(
        { ...where, ...verified.precondition },
        { set, unset, ...(inc && { inc }) },
      );
      return confirmed && { user: confirmed, passwordChanged: false };
    }
    await mails.passwordChanged(user, user.passwordVersion + 1);
    const confirmed = await users.updateOne(where, {
      set: { ...set, passwordHash: verified.passwordHash },
      unset: [...ALL_LINK_FIELDS, 'keptSession'],
      inc: { ...inc, passwordVersion: 1, sessionEpoch: 1 },
    });
    if (!confirmed) return null;
    await deps.foreignHashes.remove(user);
    await audit.record({ event: 'password.reset', subject: user.id, ip: origin.ip });
    emit('session.revoked', { userId: user.id, scope: 'global' });
    return { user: confirmed, passwordChanged: true };
  };
}

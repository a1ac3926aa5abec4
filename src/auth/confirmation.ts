import type { Origin } from '../http/scope.js';
import { httpErrors } from '../kernel/errors.js';
import type { Audit } from '../ops/audit.js';
import type { Where } from '../storage/collection.js';
import type { AuthDependencies } from './dependencies.js';
import type { NewPasswords } from './new-password.js';
import type { SessionService } from './sessions.js';
import { ALL_LINKS, type UserDocument } from './store.js';

/** What the person who follows a link to a mailbox presents. */
export interface ConfirmationProof {
  /** The current password of the account, or the new one of the person who takes it over. */
  password?: string;
  /** An Authorization header with an access token; read only where there is no password. */
  authorization?: string;
}

/**
 * Confirms an address. A link proves the mailbox, not that its reader created the account: only a session or the
 * current password of the account proves that. Any other password becomes the new one, and everything that the
 * previous holder has (sessions, links) ends in the same write.
 *
 * @param link selects the user by the link, so that it is used once
 * @returns the user as stored after the change, or `null` when the link was used or replaced meanwhile
 * @throws VALIDATION_ERROR (also without any proof), WEAK_PASSWORD, UNAUTHENTICATED, TOKEN_EXPIRED, OVERLOADED
 */
export type ConfirmAddress = (
  user: UserDocument,
  proof: ConfirmationProof,
  confirmation: {
    link: Where<UserDocument>;
    email: string;
    /** The links that end with a confirmation by the holder of the account. */
    unset: readonly (typeof ALL_LINKS)[number][];
    inc?: { emailVersion: number };
    /** Queues the mails that tell of the change; they wait until it is stored. */
    announce?(): Promise<void>;
  },
  origin: Origin,
) => Promise<{ user: UserDocument; passwordChanged: boolean } | null>;

export interface ConfirmationDependencies
  extends Pick<AuthDependencies, 'users' | 'passwords' | 'foreignHashes' | 'mails' | 'emit'> {
  newPasswords: NewPasswords;
  audit: Audit;
  authenticate: SessionService['authenticate'];
}

export function createConfirmation(deps: ConfirmationDependencies): ConfirmAddress {
  const { users, passwords, newPasswords, mails, audit, emit } = deps;

  /** The state of the account under which the proof holds, or the hash of its new password. */
  const prove = async (
    user: UserDocument,
    { password, authorization }: ConfirmationProof,
    email: string,
    { isDisconnected }: Origin,
  ): Promise<{ holder: Where<UserDocument> } | { passwordHash: string }> => {
    const { passwordVersion, sessionEpoch } = user;
    if (password === undefined) {
      const identity = authorization === undefined ? null : await deps.authenticate(authorization);
      if (identity?.user.id === user.id) return { holder: { passwordVersion, sessionEpoch } };
      const message = 'is required: the current password of the account or a new one';
      throw httpErrors.VALIDATION_ERROR({ details: [{ path: 'password', message }] });
    }
    // Before the comparison, so that no refusal tells whether a password is the current one.
    newPasswords.check(password);
    await newPasswords.validate(password, email);
    const { ok } = await passwords.verify(user.passwordHash ?? null, password, isDisconnected);
    return ok
      ? { holder: { passwordVersion } }
      : { passwordHash: await passwords.hash(password, isDisconnected) };
  };

  return async (user, proof, { link, email, unset, inc, announce }, origin) => {
    const proven = await prove(user, proof, email, origin);
    const where = { ...link, id: user.id, suspendedAt: null };
    const set = { email, emailVerified: true };
    // Mails before the write: they wait for the version, and a crash in between loses nothing.
    await announce?.();
    if ('holder' in proven) {
      const confirmed = await users.updateOne(
        { ...where, ...proven.holder },
        { set, unset, ...(inc && { inc }) },
      );
      return confirmed && { user: confirmed, passwordChanged: false };
    }
    await mails.passwordChanged(user, user.passwordVersion + 1);
    const confirmed = await users.updateOne(where, {
      set: { ...set, passwordHash: proven.passwordHash },
      unset: [...ALL_LINKS, 'keptSession'],
      inc: { ...inc, passwordVersion: 1, sessionEpoch: 1 },
    });
    if (!confirmed) return null;
    await deps.foreignHashes.remove(user);
    await audit.record({ event: 'password.reset', subject: user.id, ip: origin.ip });
    emit('session.revoked', { userId: user.id, scope: 'global' });
    return { user: confirmed, passwordChanged: true };
  };
}

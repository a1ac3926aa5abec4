import { canonicalEmail } from '../../../core/http/mailboxes.js';
import { httpErrors, invalidFields } from '../../../core/kernel/errors.js';
import { auditActor, changeDetail, type Operator } from '../../../core/ops/audit.js';
import type { CommitPart } from '../../../core/ops/commit.js';
import { type Change, UniqueViolation, type Where } from '../../../core/storage/collection.js';
import { applyChange } from '../../../core/storage/semantics.js';
import type { AuthDependencies } from '../dependencies.js';
import { authErrors } from '../errors.js';
import { type LinkToken, newLinkToken, VERIFICATION_LINK_TTL_MS } from '../links/link-tokens.js';
import type { PasswordRules } from '../sign-in/credentials.js';
import { ALL_LINK_FIELDS, isDisabled, type UserDocument } from '../store.js';
import { METADATA_KINDS, type MetadataInput, mergeMetadata, metadataSizeProblem } from './metadata.js';
import { findUser, profileProblems, trimmedProfile, type UserKey, userNotFound } from './users.js';

/** What a host changes about a user; what is absent stays as it is. */
export interface UserChange extends MetadataInput {
  /** The display name; an empty one removes it. */
  name?: string;
  /**
   * The new address applies at once. It counts as unverified and gets a link, unless `emailVerified` is true; the old one gets a
   * notice. Mailed links become invalid; sessions stay.
   */
  email?: string;
  /** Whether the address counts as verified, without a mail and an event. */
  emailVerified?: boolean;
  /** Ends every session and makes mailed links invalid; the user gets a notice. */
  password?: string;
}

/** Changes of users by the host. */
export function createUserUpdate(deps: AuthDependencies & { passwordRules: PasswordRules }) {
  const { users, mails, passwordRules, audit, commit, event } = deps;

  /** The hash of a new password. The address that it must not contain is the new one. */
  const hashOf = async (password: string, email: string): Promise<string> => {
    passwordRules.validateFormat(password);
    await passwordRules.validateStrength(password, email);
    return deps.passwords.hash(password);
  };

  /** What follows from a change. */
  const partsOf = async (
    before: UserDocument,
    after: UserDocument,
    { inc }: UserWrite,
    link: LinkToken,
    operator: Operator | undefined,
  ): Promise<CommitPart[]> => {
    const { id } = after;
    const setsPassword = inc.passwordVersion !== undefined;
    // Never the values of metadata: the user reads the audit.
    const detail = JSON.stringify({
      ...JSON.parse(changeDetail(profileOf(before), profileOf(after))),
      ...(setsPassword && { password: 'set' }),
      ...(inc.metadataRev !== undefined && { metadata: 'changed' }),
    });
    return [
      audit.entry({ event: 'user.updated', subject: id, ...auditActor(operator), detail }),
      inc.emailVersion === undefined
        ? undefined
        : mails.emailChanged(before, after.email, after.emailVersion ?? 0, undefined),
      after.verifyHash === link.hash ? mails.verifyEmail(after, link) : undefined,
      setsPassword ? mails.passwordChanged(before, after.passwordVersion, undefined) : undefined,
      // A new password ends all sessions.
      setsPassword ? await event('session.revoked', { userId: id, scope: 'global' }) : undefined,
      inc.profileVersion === undefined
        ? undefined
        : await event('user.updated', { userId: id, user: deps.presentUser(after) }),
    ];
  };

  return {
    /**
     * Applies a change in one commit, also to a suspended account. Of concurrent changes, none is lost.
     * @throws NOT_FOUND, also during a deletion; VALIDATION_ERROR, WEAK_PASSWORD, EMAIL_TAKEN, OVERLOADED
     */
    async update(by: UserKey, given: UserChange, operator?: Operator): Promise<UserDocument> {
      const change = trimmedProfile(given);
      validateChange(change);
      const { password } = change;
      let passwordHash: string | undefined;
      for (let user = await findUser(users, by); ; user = await users.findOne({ id: user.id })) {
        if (!user || user.deletingAt !== undefined) throw userNotFound();
        const email = change.email === undefined ? user.email : canonicalEmail(change.email);
        if (password !== undefined) passwordHash ??= await hashOf(password, email);
        const link = newLinkToken(user.id, VERIFICATION_LINK_TTL_MS, deps);
        const write = writeOf(user, change, { passwordHash, link, mark: deps.profileMark() });
        if (!write) return user;
        const { where, ...changes } = write;
        const after = applyChange(user, changes);
        const { committed } = await commit([
          users.changing(where, changes),
          ...(await partsOf(user, after, write, link, operator)),
        ]).catch((error: unknown) => {
          throw error instanceof UniqueViolation ? authErrors.EMAIL_TAKEN() : error;
        });
        // Another change came first: it is read, and this one is applied to its result.
        if (!committed) continue;
        if (passwordHash !== undefined) await deps.foreignHashes.remove(user);
        if (user.email !== after.email || user.name !== after.name) deps.profileChanged();
        return after;
      }
    },
  };
}

/** A conditional change: of the state that it was derived from. */
interface UserWrite extends Change<UserDocument> {
  where: Where<UserDocument>;
  set: Partial<Omit<UserDocument, 'id'>>;
  inc: NonNullable<Change<UserDocument>['inc']>;
}

const profileOf = ({ email, name, emailVerified }: UserDocument) => ({ email, name, emailVerified });

/** Null if the change has no effect. */
function writeOf(
  user: UserDocument,
  change: UserChange,
  {
    passwordHash,
    link,
    mark,
  }: { passwordHash: string | undefined; link: LinkToken; mark: Partial<UserDocument> },
): UserWrite | null {
  const where: Where<UserDocument> = { id: user.id, deletingAt: null };
  const set: UserWrite['set'] = {};
  const inc: UserWrite['inc'] = {};
  const unset = new Set<NonNullable<Change<UserDocument>['unset']>[number]>();
  const email = change.email === undefined ? user.email : canonicalEmail(change.email);
  const name = change.name ?? user.name ?? '';
  const isMoved = email !== user.email;

  if (name !== (user.name ?? '')) {
    if (name === '') unset.add('name');
    else set.name = name;
  }
  if (isMoved) {
    set.email = email;
    inc.emailVersion = 1;
    where.email = user.email;
  }
  const emailVerified = change.emailVerified ?? (isMoved ? false : user.emailVerified);
  if (emailVerified !== user.emailVerified) {
    set.emailVerified = emailVerified;
    where.email = user.email;
  }
  if (passwordHash !== undefined) {
    set.passwordHash = passwordHash;
    Object.assign(inc, { passwordVersion: 1, sessionEpoch: 1 });
    where.passwordVersion = user.passwordVersion;
    unset.add('keptSession');
  }
  if (isMoved || passwordHash !== undefined)
    for (const field of [...ALL_LINK_FIELDS, 'usedLink'] as const) unset.add(field);
  if (isMoved && !emailVerified && !isDisabled(user)) {
    Object.assign(set, { verifyHash: link.hash, verifyExpiresAt: link.expiresAt });
    for (const field of ['verifyHash', 'verifyExpiresAt'] as const) unset.delete(field);
    where.suspendedAt = null;
  }
  for (const kind of METADATA_KINDS) {
    const patch = change[kind];
    const merged = patch === undefined ? null : mergeMetadata(user[kind], patch);
    if (patch === undefined || merged === (user[kind] ?? null)) continue;
    const problem = metadataSizeProblem(merged);
    if (problem) throw invalidFields({ path: kind, message: problem });
    if (merged === null) unset.add(kind);
    else set[kind] = merged;
    inc.metadataRev = 1;
    where.metadataRev = user.metadataRev ?? null;
  }
  if (Object.keys({ ...set, ...inc }).length + unset.size === 0) return null;
  const isProfile = isMoved || inc.metadataRev !== undefined || emailVerified !== user.emailVerified;
  if (isProfile || name !== (user.name ?? '')) {
    inc.profileVersion = 1;
    where.profileVersion = user.profileVersion ?? null;
  }
  if (isMoved || name !== (user.name ?? '')) Object.assign(set, mark);
  return { where, set, inc, unset: [...unset] };
}

/** Validates the types, too, because the change may come from JavaScript. @throws VALIDATION_ERROR */
function validateChange(change: UserChange): void {
  const known = ['name', 'email', 'emailVerified', 'password', ...METADATA_KINDS];
  const unknown = Object.keys(change).filter((field) => !known.includes(field));
  const problems = {
    ...profileProblems(change),
    password: change.password !== undefined && typeof change.password !== 'string' && 'must be a string',
    ...Object.fromEntries(unknown.map((field) => [field, 'is not a field that can be changed'])),
  };
  const details = Object.entries(problems).flatMap(([path, message]) => (message ? [{ path, message }] : []));
  if (details.length > 0) throw httpErrors.VALIDATION_ERROR({ details });
}

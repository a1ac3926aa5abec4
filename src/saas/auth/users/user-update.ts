import { canonicalEmail } from '../../../core/http/mailboxes.js';
import { httpErrors, invalidFields } from '../../../core/kernel/errors.js';
import { auditActor, changeDetail, type Operator } from '../../../core/ops/audit.js';
import type { AnnouncedEvent } from '../../../core/ops/events.js';
import { UNANSWERED_LINK_FIELDS } from '../../../core/ops/used-links.js';
import { type Change, UniqueViolation, type Where } from '../../../core/storage/collection.js';
import type { AuthDependencies } from '../dependencies.js';
import { authErrors } from '../errors.js';
import { proofOfEpoch, proofOfProfile } from '../events.js';
import type { Verification } from '../links/verification.js';
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

export interface UserUpdateDependencies extends AuthDependencies {
  passwordRules: PasswordRules;
  sendVerification: Verification['sendVerification'];
}

/** Changes of users by the host. */
export function createUserUpdate(deps: UserUpdateDependencies) {
  const { users, mails, passwordRules, audit } = deps;

  /** The hash of a new password. The address that it must not contain is the new one. */
  const hashOf = async (password: string, email: string): Promise<string> => {
    passwordRules.validateFormat(password);
    await passwordRules.validateStrength(password, email);
    return deps.passwords.hash(password);
  };

  const notices = (user: UserDocument, { set, inc }: UserWrite) => [
    inc.emailVersion !== undefined && set.email !== undefined
      ? mails.emailChanged(user, set.email, (user.emailVersion ?? 0) + 1, undefined)
      : undefined,
    inc.passwordVersion === undefined
      ? undefined
      : mails.passwordChanged(user, user.passwordVersion + 1, undefined),
  ];

  /** A new password ends all sessions. */
  const announceEnd = async (
    { id, sessionEpoch }: UserDocument,
    { inc }: UserWrite,
  ): Promise<AnnouncedEvent | undefined> =>
    inc.passwordVersion === undefined
      ? undefined
      : deps.announceEvent(
          'session.revoked',
          { userId: id, scope: 'global' },
          proofOfEpoch(id, sessionEpoch + 1, null),
        );

  const announceUpdate = async (
    user: UserDocument,
    { set, unset, inc }: UserWrite,
  ): Promise<AnnouncedEvent | undefined> => {
    if (inc.profileVersion === undefined) return undefined;
    const after: UserDocument = { ...user, ...set };
    for (const field of unset ?? []) delete after[field];
    const proof = proofOfProfile(user.id, (user.profileVersion ?? 0) + 1);
    return deps.announceEvent('user.updated', { userId: user.id, user: deps.presentUser(after) }, proof);
  };

  const finish = async (
    before: UserDocument,
    user: UserDocument,
    { inc }: UserWrite,
    operator: Operator | undefined,
    announced: readonly (AnnouncedEvent | undefined)[],
  ): Promise<void> => {
    const { id } = user;
    const changed = changeDetail(profileOf(before), profileOf(user));
    // Never the values of metadata: the user reads the audit.
    const detail = JSON.stringify({
      ...JSON.parse(changed),
      ...(inc.passwordVersion !== undefined && { password: 'set' }),
      ...(inc.metadataRev !== undefined && { metadata: 'changed' }),
    });
    await audit.record({ event: 'user.updated', subject: id, ...auditActor(operator), detail });
    if (inc.passwordVersion !== undefined) await deps.foreignHashes.remove(before);
    for (const event of announced) await event?.emit();
    if (before.email !== user.email || before.name !== user.name) deps.profileChanged();
    if (inc.emailVersion !== undefined && !user.emailVerified && !isDisabled(user))
      await deps.sendVerification(user);
  };

  return {
    /**
     * Applies a change in one write, also to a suspended account. Of concurrent changes, none is lost.
     * @throws NOT_FOUND, also during a deletion; VALIDATION_ERROR, WEAK_PASSWORD, EMAIL_TAKEN, OVERLOADED
     */
    async update(by: UserKey, given: UserChange, operator?: Operator): Promise<UserDocument> {
      const change = trimmedProfile(given);
      validateChange(change);
      const found = await findUser(users, by);
      if (!found) throw userNotFound();
      const { id } = found;
      const { password } = change;
      const passwordHash =
        password === undefined
          ? undefined
          : await hashOf(password, change.email === undefined ? found.email : canonicalEmail(change.email));
      for (;;) {
        const user = await users.findOne({ id });
        if (!user || user.deletingAt !== undefined) throw userNotFound();
        const write = writeOf(user, change, { passwordHash, mark: deps.profileMark() });
        if (!write) return user;
        if (write.set.email !== undefined && (await users.findOne({ email: write.set.email })))
          throw authErrors.EMAIL_TAKEN();
        const announced = [await announceEnd(user, write), await announceUpdate(user, write)];
        const withdraw = () => Promise.all(announced.map((event) => event?.withdraw()));
        const { where, ...applied } = write;
        const written = await users.updateOne(where, applied).catch(async (error: unknown) => {
          if (!(error instanceof UniqueViolation)) throw error;
          await withdraw();
          throw authErrors.EMAIL_TAKEN();
        });
        if (written) {
          await deps.commit(notices(user, write));
          await finish(user, written, write, operator, announced);
          return written;
        }
        // Another change came first: it is read, and this one is applied to its result.
        await withdraw();
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
  { passwordHash, mark }: { passwordHash: string | undefined; mark: Partial<UserDocument> },
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
    for (const field of [...ALL_LINK_FIELDS, ...UNANSWERED_LINK_FIELDS]) unset.add(field);
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

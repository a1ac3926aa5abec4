import { canonicalEmail } from '../../../core/http/mailboxes.js';
import { httpErrors } from '../../../core/kernel/errors.js';
import { auditActor, changeDetail, type Operator } from '../../../core/ops/audit.js';
import { type CommitPart, decideAndCommit } from '../../../core/ops/commit.js';
import { type Change, UniqueViolation, type Where } from '../../../core/storage/collection.js';
import { applyChange } from '../../../core/storage/semantics.js';
import type { AuthDependencies } from '../dependencies.js';
import { authErrors } from '../errors.js';
import { type LinkToken, newLinkToken, VERIFICATION_LINK_TTL_MS } from '../links/link-tokens.js';
import type { PasswordRules } from '../sign-in/credentials.js';
import { ALL_LINK_FIELDS, isDisabled, type UserDocument } from '../store.js';
import { METADATA_KINDS, type MetadataInput, mergeMetadata } from './metadata.js';
import {
  fieldsProblem,
  findUser,
  profileProblems,
  trimmedProfile,
  type UserKey,
  userNotFound,
} from './users.js';

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

export type UserUpdate = ReturnType<typeof createUserUpdate>;

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
    // Never the values of metadata and fields: the user reads the audit.
    const detail = JSON.stringify({
      ...JSON.parse(changeDetail(profileOf(before), profileOf(after))),
      ...(setsPassword && { password: 'set' }),
      ...(METADATA_KINDS.some((kind) => before[kind] !== after[kind]) && { metadata: 'changed' }),
      ...(before.fields !== after.fields && { fields: 'changed' }),
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
      setsPassword ? await deps.foreignHashes.removing(before) : undefined,
      before.email !== after.email || before.name !== after.name ? deps.profileChanged : undefined,
    ];
  };

  return {
    /**
     * Applies a change in one commit, also to a suspended account. Of concurrent changes, none is lost.
     * @throws NOT_FOUND, also during a deletion; VALIDATION_ERROR, WEAK_PASSWORD, EMAIL_TAKEN, OVERLOADED
     */
    async update(by: UserKey, given: UserChange, operator?: Operator): Promise<UserDocument> {
      const change = trimmedProfile(given);
      validateChange(change, deps.userFields);
      const { password } = change;
      let passwordHash: string | undefined;
      let key = by;
      return decideAndCommit(commit, async () => {
        const user = await findUser(users, key);
        if (!user || user.deletingAt !== undefined) throw userNotFound();
        // Another change may have given it another address.
        key = { id: user.id };
        const email = change.email === undefined ? user.email : canonicalEmail(change.email);
        if (password !== undefined) passwordHash ??= await hashOf(password, email);
        const link = newLinkToken(user.id, VERIFICATION_LINK_TTL_MS, deps);
        const { userFields } = deps;
        const fields = userFields ? userFields.change(user.fields, change.fields, 'operator') : user.fields;
        const write = writeOf(
          user,
          { ...change, email },
          { passwordHash, link, mark: deps.profileMark(), fields },
        );
        if (!write) return { result: user };
        const { where, ...changes } = write;
        const result = applyChange(user, changes);
        const parts = [
          users.changing(where, changes),
          ...(await partsOf(user, result, write, link, operator)),
        ];
        return { parts, result };
      }).catch((error: unknown) => {
        throw error instanceof UniqueViolation ? authErrors.EMAIL_TAKEN() : error;
      });
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

const OPTIONAL_FIELDS = ['name', 'fields', ...METADATA_KINDS] as const;

/** Null if the change has no effect. */
function writeOf(
  user: UserDocument,
  change: UserChange & { email: string },
  {
    passwordHash,
    link,
    mark,
    fields,
  }: {
    passwordHash: string | undefined;
    link: LinkToken;
    mark: Partial<UserDocument>;
    fields: string | undefined;
  },
): UserWrite | null {
  const { email } = change;
  const isMoved = email !== user.email;
  const metadata = mergeMetadata(user, change);
  const profile = {
    email,
    name: (change.name ?? user.name) || undefined,
    emailVerified: change.emailVerified ?? (!isMoved && user.emailVerified),
    publicMetadata: metadata.publicMetadata,
    privateMetadata: metadata.privateMetadata,
    fields,
  };
  const names = Object.keys(profile) as (keyof typeof profile)[];
  const changed = names.filter((field) => profile[field] !== user[field]);
  const isPresent = (field: keyof typeof profile) => profile[field] !== undefined;
  const setsPassword = passwordHash !== undefined;
  if (changed.length === 0 && !setsPassword) return null;
  const sendsLink = isMoved && !profile.emailVerified && !isDisabled(user);
  const set: UserWrite['set'] = {
    ...Object.fromEntries(changed.filter(isPresent).map((field) => [field, profile[field]])),
    // A link may have verified the former address since `user` was read.
    ...(isMoved && { emailVerified: profile.emailVerified }),
    ...((isMoved || changed.includes('name')) && mark),
    ...(setsPassword && { passwordHash }),
    ...(sendsLink && { verifyHash: link.hash, verifyExpiresAt: link.expiresAt }),
  };
  const removed = [
    ...OPTIONAL_FIELDS.filter((field) => changed.includes(field) && !isPresent(field)),
    ...(isMoved || setsPassword ? ([...ALL_LINK_FIELDS, 'usedLink'] as const) : []),
    ...(setsPassword ? (['keptSession'] as const) : []),
  ];
  return {
    where: {
      id: user.id,
      deletingAt: null,
      ...(changed.length > 0 && { profileVersion: user.profileVersion ?? null }),
      ...(setsPassword && { passwordVersion: user.passwordVersion }),
      ...(sendsLink && { suspendedAt: null }),
    },
    set,
    unset: removed.filter((field) => !(field in set)),
    inc: {
      ...(changed.length > 0 && { profileVersion: 1 }),
      ...(isMoved && { emailVersion: 1 }),
      ...(setsPassword && { passwordVersion: 1, sessionEpoch: 1 }),
    },
  };
}

/** Validates the types, too, because the change may come from JavaScript. @throws VALIDATION_ERROR */
function validateChange(change: UserChange, rules: AuthDependencies['userFields']): void {
  const known = ['name', 'email', 'emailVerified', 'password', 'fields', ...METADATA_KINDS];
  const unknown = Object.keys(change).filter((field) => !known.includes(field));
  const problems = {
    ...profileProblems(change),
    fields: fieldsProblem(change.fields, rules),
    password: change.password !== undefined && typeof change.password !== 'string' && 'must be a string',
    ...Object.fromEntries(unknown.map((field) => [field, 'is not a field that can be changed'])),
  };
  const details = Object.entries(problems).flatMap(([path, message]) => (message ? [{ path, message }] : []));
  if (details.length > 0) throw httpErrors.VALIDATION_ERROR({ details });
}

import { formatValue, mustBe } from '../../../core/config/validation-messages.js';
import { canonicalEmail } from '../../../core/http/mailboxes.js';
import {
  Email,
  matchesSchema,
  OptionalName,
  toTimestamp,
  toTimestampOrNull,
  type User,
} from '../../../core/http/schemas.js';
import type { PrivateMetadata } from '../../../core/http/user-metadata.js';
import { type Clock, timesOf } from '../../../core/kernel/clock.js';
import { type ErrorDetail, httpErrors, invalidFields } from '../../../core/kernel/errors.js';
import type { Random } from '../../../core/kernel/secrets.js';
import type { CommitParts, Effect } from '../../../core/ops/commit.js';
import type { EventOf } from '../../../core/ops/events.js';
import type { PasswordPolicy } from '../../../core/passwords/common.js';
import type { Passwords } from '../../../core/passwords/hasher.js';
import {
  type Estimate,
  type Page,
  type PageQuery,
  UniqueViolation,
  type Write,
} from '../../../core/storage/collection.js';
import { readPage, searchFirst } from '../../../core/storage/pages.js';
import { OPERATOR_ROLES, type OperatorRole } from '../../../shared/console-kit/roles.js';
import { authErrors } from '../errors.js';
import type { AuthEvents } from '../events.js';
import type { ForeignHashes } from '../import/foreign-hashes.js';
import {
  newUserDocument,
  type PresentUser,
  USER_ID_PREFIX,
  type UserDocument,
  type Users,
} from '../store.js';
import type { UserFieldRules } from './fields.js';
import {
  type METADATA_KINDS,
  type MetadataInput,
  mergeMetadata,
  metadataProblem,
  privateMetadataOf,
} from './metadata.js';
import { createSetNote, type UserNote } from './note.js';
import { createChangeProfile, type ProfileChangeDependencies } from './profile-change.js';

/** Identifies a user by id, or by e-mail address in any case. */
export type UserKey = { id: string } | { email: string };

/** A user as seen by the host application and the command line. */
export interface ManagedUser extends User {
  /** ISO 8601; null unless the account is suspended. */
  suspendedAt: string | null;
  /** The plan that the operator granted, also after `until`; null without a grant. */
  granted: { plan: string; since: string; until: string | null } | null;
  /** What the host stores about the user, without the user reading it; absent if there is nothing. */
  privateMetadata?: PrivateMetadata;
}

/** A user as seen by the operator in the admin area. */
export interface OperatedUser extends ManagedUser {
  state: 'active' | 'suspended' | 'deleting';
  hasPassword: boolean;
  /** What operators have written; null if there is nothing. */
  note: UserNote | null;
  /** In the admin area; absent for everybody but operators. */
  operatorRole?: OperatorRole;
}

export type UserState = 'suspended' | 'deleting' | 'unverified' | 'operators';

export interface UserListQuery {
  search: string | undefined;
  state: UserState | undefined;
  after: string | undefined;
  limit: number;
}

export const userNotFound = () => httpErrors.NOT_FOUND({ message: 'The user was not found.' });

/** Returns `null` for an invalid address, too. */
export async function findUser(users: Users, by: UserKey): Promise<UserDocument | null> {
  if ('id' in by) return users.findOne({ id: by.id });
  const email = canonicalEmail(by.email);
  return matchesSchema(email, Email) ? users.findOne({ email }) : null;
}

/** What other domains and the host application can do with users. */
export type UserDirectory = ReturnType<typeof createUserDirectory>;

export function createUserDirectory(deps: NewUserDependencies & ProfileChangeDependencies) {
  const { users, presentUser } = deps;
  const toManagedUser = (user: UserDocument): ManagedUser => ({
    ...presentUser(user),
    suspendedAt: toTimestampOrNull(user.suspendedAt),
    granted: user.grant
      ? {
          plan: user.grant.plan,
          since: toTimestamp(user.grant.since),
          until: toTimestampOrNull(user.grant.until),
        }
      : null,
    ...privateMetadataOf(user),
  });
  const toOperatedUser = (user: UserDocument): OperatedUser => ({
    ...toManagedUser(user),
    state:
      user.deletingAt !== undefined ? 'deleting' : user.suspendedAt !== undefined ? 'suspended' : 'active',
    hasPassword: user.passwordHash !== undefined,
    note: user.note ? { ...user.note, at: toTimestamp(user.note.at) } : null,
    ...(user.operatorRole && { operatorRole: user.operatorRole }),
  });
  return {
    toManagedUser,
    /** Finds a user by ID or address; null if there is none. */
    async find(by: UserKey): Promise<ManagedUser | null> {
      const user = await findUser(users, by);
      return user && toManagedUser(user);
    },
    /**
     * Creates an account, even when registration is disabled.
     * @throws VALIDATION_ERROR, WEAK_PASSWORD, EMAIL_TAKEN, OVERLOADED
     */
    async create(input: NewUser): Promise<ManagedUser> {
      const created = (subject: string) => deps.audit.entry({ event: 'user.created', subject, ip: 'local' });
      return toManagedUser(await insertUser(input, deps, created));
    },
    changeProfile: createChangeProfile(deps),
    setNote: createSetNote(deps),
    estimate: (): Promise<Estimate> => users.estimate(),
    async listNewest(limit: number): Promise<User[]> {
      const { items } = await users.page({ sort: 'createdAt', desc: true, limit });
      return items.map(presentUser);
    },
    /**
     * Lists users by the beginning of their address or by their ID, or those in a state; without both all, the newest first.
     * @throws VALIDATION_ERROR for an invalid `after`, or for a search with a state, which no index serves
     */
    async list({ search, state, after, limit }: UserListQuery): Promise<Page<OperatedUser>> {
      const page = await readPage(users, { ...matching(search, state), after, limit });
      return { ...page, items: page.items.map(toOperatedUser) };
    },
    /** Finds users by any part of their address or name, after the one with an ID. */
    async search(text: string, limit: number, id: string | undefined): Promise<OperatedUser[]> {
      const identified = id === undefined ? null : users.findOne({ id });
      return (await searchFirst(users, { text, limit, identified })).map(toOperatedUser);
    },
    /** @throws NOT_FOUND */
    async findOperated(id: string): Promise<OperatedUser> {
      const user = await users.findOne({ id });
      if (!user) throw userNotFound();
      return toOperatedUser(user);
    },
    /** The users before and after one in the list of all users. */
    async neighbours({ id, createdAt }: Pick<User, 'id' | 'createdAt'>) {
      const at = Date.parse(createdAt);
      const nearest = async (desc: boolean): Promise<string | null> => {
        const from = <V>(value: V) => (desc ? { lt: value } : { gt: value });
        const same = await users.page({ where: { createdAt: at, id: from(id) }, sort: 'id', desc, limit: 1 });
        if (same.items[0]) return same.items[0].id;
        const where = { createdAt: from(at) };
        return (await users.page({ where, sort: 'createdAt', desc, limit: 1 })).items[0]?.id ?? null;
      };
      const [previous, next] = await Promise.all([nearest(false), nearest(true)]);
      return { previous, next };
    },
    /** Counts the registrations of each day (ISO 8601 dates, UTC), each up to `limit`. */
    countRegistrations: (days: readonly string[], limit: number): Promise<number[]> =>
      Promise.all(days.map((day) => users.count({ createdAt: timesOf(day) }, limit))),
  };
}

export type Matching = Pick<PageQuery<UserDocument>, 'where' | 'sort' | 'desc'>;

/** What a list finds; every character of an address is below `~`, so that the range is a prefix. */
export function matching(search: string | undefined, state: UserState | undefined): Matching {
  if (search !== undefined && state !== undefined)
    throw invalidFields({ path: 'show', message: 'cannot be combined with a search: clear one of them' });
  if (state !== undefined) return IN_STATE[state];
  if (search === undefined) return { sort: 'createdAt', desc: true };
  const id = search.trim();
  if (id.startsWith(USER_ID_PREFIX)) return { where: { id }, sort: 'id' };
  const prefix = canonicalEmail(search);
  return { where: { email: { gte: prefix, lt: `${prefix}\u007f` } }, sort: 'email' };
}

/** Each by an index of its own; a deletion begins with a suspension. */
const IN_STATE: Record<UserState, Matching> = {
  suspended: { where: { suspendedAt: { gt: 0 } }, sort: 'suspendedAt', desc: true },
  deleting: { where: { deletingAt: { gt: 0 } }, sort: 'deletingAt', desc: true },
  unverified: { where: { emailVerified: false }, sort: 'createdAt', desc: true },
  operators: { where: { operatorRole: { in: OPERATOR_ROLES } }, sort: 'operatorRole' },
};

/** At most one of `password` and `passwordHash`; without either, the user sets a password by mail. */
export interface NewUser extends MetadataInput {
  /** The ID in another system: 1 to 64 letters, digits, `_` and `-`. Default: a new one. */
  id?: string;
  /** One ASCII address, in any case. */
  email: string;
  /** It has to satisfy the rules for new passwords. */
  password?: string;
  /** A hash of another system: argon2, bcrypt, scrypt or PBKDF2. */
  passwordHash?: string;
  /** The display name; default: none. */
  name?: string;
  /** Default `false`. */
  emailVerified?: boolean;
  /** Whether the account is suspended from the beginning. Default `false`. */
  suspended?: boolean;
  /** Unix time in milliseconds. Default: now. */
  createdAt?: number;
  /** The user's customer at the payment provider, such as `cus_…`. */
  customerId?: string;
}

/** What is stored with a new user. */
export interface NewUserParts {
  record?: Effect | undefined;
  customerId?: string | undefined;
}

/** Stores a new user, with what follows from it. @throws UniqueViolation */
export type StoreUser = (user: UserDocument, parts: NewUserParts) => Promise<void>;

/** The customers at the payment provider. */
export interface CustomerOwners {
  collection: string;
  /** Undefined if the customer belongs to a user already. */
  linking(userId: string, customerId: string): Promise<Write | undefined>;
}

export interface StoreUserDependencies {
  users: Pick<Users, 'inserting'>;
  foreignHashes: Pick<ForeignHashes, 'adding'>;
  customers: CustomerOwners;
  presentUser: PresentUser;
  commit: CommitParts;
  event: EventOf<AuthEvents>;
}

export const createStoreUser =
  ({ users, foreignHashes, customers, presentUser, commit, event }: StoreUserDependencies): StoreUser =>
  async (user, { record, customerId }) => {
    const link = customerId === undefined ? undefined : await customers.linking(user.id, customerId);
    if (customerId !== undefined && !link) throw new UniqueViolation(customers.collection, 'id');
    await commit([
      users.inserting(user),
      foreignHashes.adding(user),
      link,
      await event('user.registered', { userId: user.id, user: presentUser(user) }),
      record,
    ]);
  };

export interface NewUserDependencies {
  users: Pick<Users, 'findOne'>;
  storeUser: StoreUser;
  customers: CustomerOwners;
  passwords: Passwords;
  passwordPolicy: PasswordPolicy;
  /** Absent without the option. */
  userFields?: UserFieldRules | undefined;
  siteName(): Promise<string>;
  clock: Clock;
  random: Random;
}

/**
 * Stores a user under the rules of registration.
 * @param recordOf the audit record of the user with an ID
 * @throws VALIDATION_ERROR, WEAK_PASSWORD, EMAIL_TAKEN, OVERLOADED
 */
export async function insertUser(
  input: NewUser,
  deps: NewUserDependencies,
  recordOf?: (id: string) => Effect,
): Promise<UserDocument> {
  const { clock, passwords } = deps;
  const given = trimmedProfile(input);
  const details = validateNewUser(given, deps);
  if (details.length > 0) throw httpErrors.VALIDATION_ERROR({ details });
  const { id, email, password, name, emailVerified = false, suspended, createdAt = clock.now() } = given;
  const found = id === undefined ? null : await deps.users.findOne({ id });
  if (found && found.email !== canonicalEmail(email)) throw ID_TAKEN();
  if (found) throw authErrors.EMAIL_TAKEN();
  if (password !== undefined) await deps.passwordPolicy.validate(password, [email, await deps.siteName()]);
  const passwordHash = password === undefined ? input.passwordHash : await passwords.hash(password);
  const metadata = mergeMetadata({}, input);
  const fields = deps.userFields?.change(undefined, input.fields, 'operator');
  const profile = { id, email, name, passwordHash, emailVerified, metadata, fields };
  const user: UserDocument = {
    ...newUserDocument(profile, createdAt, deps),
    ...(suspended && { suspendedAt: clock.now() }),
  };
  const { customerId } = given;
  await deps.storeUser(user, { record: recordOf?.(user.id), customerId }).catch(async (error: unknown) => {
    if (!(error instanceof UniqueViolation)) throw error;
    // An account that was imported before has its customer.
    if (error.collection === deps.customers.collection)
      throw (await deps.users.findOne({ email: user.email })) ? authErrors.EMAIL_TAKEN() : CUSTOMER_TAKEN();
    // Of concurrent insertions with one ID, or of two lines of an import.
    const isOther = error.field === 'id' && (await deps.users.findOne({ id: user.id }))?.email !== user.email;
    throw isOther ? ID_TAKEN() : authErrors.EMAIL_TAKEN();
  });
  return user;
}

/** Validates the types, too, because the input may come from JavaScript or from a file. */
function validateNewUser(
  input: Partial<Record<keyof NewUser, unknown>>,
  { passwords, clock, userFields }: NewUserDependencies,
): ErrorDetail[] {
  const { id, email, password, passwordHash, suspended, createdAt, customerId } = input;
  const problems: Record<keyof NewUser, string | null | false> = {
    id:
      !(id === undefined || (typeof id === 'string' && USER_ID.test(id))) &&
      `must have 1 to 64 letters, digits, _ and -; given: ${formatValue(id)}`,
    ...profileProblems({ ...input, email: email ?? null }),
    fields: fieldsProblem(input.fields, userFields),
    suspended: !isFlag(suspended) && mustBeFlag(suspended),
    password:
      password !== undefined &&
      (typeof password === 'string' ? passwords.problem(password) : 'must be a string'),
    passwordHash:
      passwordHash !== undefined &&
      (password !== undefined
        ? 'cannot be combined with a password: send one of them'
        : !(typeof passwordHash === 'string' && passwords.accepts(passwordHash)) &&
          'must be an argon2, bcrypt, scrypt or PBKDF2 hash of usual cost'),
    customerId:
      !(customerId === undefined || (typeof customerId === 'string' && CUSTOMER_ID.test(customerId))) &&
      `must be the ID of a customer, like cus_1Ada; given: ${formatValue(customerId)}`,
    createdAt:
      !(createdAt === undefined || (Number.isSafeInteger(createdAt) && isPast(createdAt as number, clock))) &&
      `must be a time in the past, like 1706702400000 or, in a file, 2024-01-31T12:00:00Z; given: ${formatValue(createdAt)}`,
  };
  return Object.entries(problems).flatMap(([path, message]) => (message ? [{ path, message }] : []));
}

const USER_ID = /^[\w-]{1,64}$/;

const CUSTOMER_ID = /^cus_\w{1,250}$/;

const ID_TAKEN = () => invalidFields({ path: 'id', message: 'belongs to another account' });

const CUSTOMER_TAKEN = () => invalidFields({ path: 'customerId', message: 'belongs to another account' });

/** Without the spaces that files and forms add around an address and a name. Blank names and other types stay for the validation. */
export function trimmedProfile<T extends { email?: unknown; name?: unknown }>(given: T): T {
  const { email, name } = given;
  return {
    ...given,
    ...(typeof email === 'string' && { email: email.trim() }),
    ...(typeof name === 'string' && { name: name.trim() || name }),
  };
}

/** What a host can give at the creation and change later. */
type GivenProfile = Partial<
  Record<'email' | 'name' | 'emailVerified' | (typeof METADATA_KINDS)[number], unknown>
>;

/** Their values are validated when they are merged with those that are stored. */
export const fieldsProblem = (given: unknown, rules: UserFieldRules | undefined): string | false =>
  given !== undefined && rules === undefined && "needs the option 'userFields', which declares them";

/** The problem of each field that is given. */
export function profileProblems({
  email,
  name,
  emailVerified,
  publicMetadata,
  privateMetadata,
}: GivenProfile): Record<keyof GivenProfile, string | null | false> {
  const isText = (value: unknown, schema: typeof Email) =>
    value === undefined || (typeof value === 'string' && matchesSchema(value, schema));
  return {
    email: !isText(email, Email) && mustBe(Email, email),
    name: !isText(name, OptionalName) && mustBe(OptionalName, name),
    emailVerified: !isFlag(emailVerified) && mustBeFlag(emailVerified),
    publicMetadata: metadataProblem(publicMetadata),
    privateMetadata: metadataProblem(privateMetadata),
  };
}

const isFlag = (value: unknown): boolean => value === undefined || typeof value === 'boolean';

const mustBeFlag = (value: unknown): string => `must be true or false; given: ${formatValue(value)}`;

function isPast(time: number, clock: Clock): boolean {
  return time >= 0 && time <= clock.now();
}

import { mustBe, shown } from '../config/validation-messages.js';
import { Email, fits, OptionalName } from '../http/schemas.js';
import type { Clock } from '../kernel/clock.js';
import { type ErrorDetail, httpErrors } from '../kernel/errors.js';
import { newId, type Random } from '../kernel/secrets.js';
import type { PasswordPolicy } from '../passwords/common.js';
import type { Passwords } from '../passwords/hasher.js';
import { UniqueViolation } from '../storage/collection.js';
import { authErrors } from './errors.js';
import type { ForeignHashes } from './foreign-hashes.js';
import type { UserDocument, Users } from './store.js';

/** Accounts that the operator's own code makes. */

/** At most one of `password` and `passwordHash`; without both the owner sets a password by mail. */
export interface NewUser {
  email: string;
  password?: string;
  /** Made elsewhere: argon2, bcrypt, scrypt or PBKDF2. */
  passwordHash?: string;
  name?: string;
  /** Default `false`. */
  emailVerified?: boolean;
  /** Epoch milliseconds. Default: now. */
  createdAt?: number;
}

export interface NewUserDependencies {
  users: Pick<Users, 'insert'>;
  passwords: Pick<Passwords, 'problem' | 'hash' | 'accepts'>;
  foreignHashes: Pick<ForeignHashes, 'add' | 'remove'>;
  passwordPolicy: PasswordPolicy;
  siteName(): Promise<string>;
  clock: Clock;
  random: Random;
}

/** Stores a user under the rules of registration. @throws VALIDATION_ERROR, WEAK_PASSWORD, EMAIL_TAKEN, OVERLOADED */
export async function insertUser(input: NewUser, deps: NewUserDependencies): Promise<UserDocument> {
  const { clock, random, passwords } = deps;
  const details = problemsOf(input, deps);
  if (details.length > 0) throw httpErrors.VALIDATION_ERROR({ details });
  const { email, password, name, emailVerified = false, createdAt = clock.now() } = input;
  if (password !== undefined) await deps.passwordPolicy.validate(password, [email, await deps.siteName()]);
  const passwordHash = password === undefined ? input.passwordHash : await passwords.hash(password);
  const user = newUserDocument({ email, name, passwordHash, emailVerified }, createdAt, { clock, random });
  await deps.foreignHashes.add(user);
  await deps.users.insert(user).catch(async (error: unknown) => {
    await deps.foreignHashes.remove(user);
    throw error instanceof UniqueViolation ? authErrors.EMAIL_TAKEN() : error;
  });
  return user;
}

/** A user as one begins. */
export function newUserDocument(
  given: {
    email: string;
    name?: string | undefined;
    passwordHash?: string | undefined;
    emailVerified: boolean;
  },
  createdAt: number,
  { clock, random }: { clock: Clock; random: Random },
): UserDocument {
  const { email, name, passwordHash, emailVerified } = given;
  return {
    id: newId('usr_', clock, random),
    email: email.toLowerCase(),
    ...(name ? { name } : {}),
    ...(passwordHash ? { passwordHash } : {}),
    passwordVersion: 1,
    emailVerified,
    sessionEpoch: 0,
    subscriptionStatus: 'none',
    subscriptionPlan: 'free',
    createdAt,
  };
}

/** What is wrong with it. Code may not have been compiled against our types, and lines of a file never are. */
function problemsOf(
  input: Partial<Record<keyof NewUser, unknown>>,
  { passwords, clock }: Pick<NewUserDependencies, 'passwords' | 'clock'>,
): ErrorDetail[] {
  const { email, password, passwordHash, name, emailVerified, createdAt } = input;
  const problems: Record<keyof NewUser, string | null | false> = {
    email: !(typeof email === 'string' && fits(email, Email)) && mustBe(Email, email),
    name:
      !(name === undefined || (typeof name === 'string' && fits(name, OptionalName))) &&
      mustBe(OptionalName, name),
    password:
      password !== undefined &&
      (typeof password === 'string' ? passwords.problem(password) : 'must be a string'),
    passwordHash:
      passwordHash !== undefined &&
      (password !== undefined
        ? 'cannot be combined with a password: send one of them'
        : !(typeof passwordHash === 'string' && passwords.accepts(passwordHash)) &&
          'must be an argon2, bcrypt, scrypt or PBKDF2 hash of usual cost'),
    emailVerified:
      !(emailVerified === undefined || typeof emailVerified === 'boolean') &&
      `must be true or false; given: ${shown(emailVerified)}`,
    createdAt:
      !(createdAt === undefined || (Number.isSafeInteger(createdAt) && isPast(createdAt as number, clock))) &&
      `must be a time in the past, like 1706702400000 or, in a file, 2024-01-31T12:00:00Z; given: ${shown(createdAt)}`,
  };
  return Object.entries(problems).flatMap(([path, message]) => (message ? [{ path, message }] : []));
}

function isPast(time: number, clock: Clock): boolean {
  return time >= 0 && time <= clock.now();
}

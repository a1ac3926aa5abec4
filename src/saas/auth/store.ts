import { canonicalEmail } from '../../core/http/mailboxes.js';
import type { Device } from '../../core/http/request-details.js';
import {
  type Impersonator,
  type Session,
  type SubscriptionSummary,
  toTimestamp,
  type User,
} from '../../core/http/schemas.js';
import type { Clock } from '../../core/kernel/clock.js';
import { newId, type Random } from '../../core/kernel/secrets.js';
import type { UsedLink } from '../../core/ops/used-links.js';
import type { Collection, Store } from '../../core/storage/collection.js';
import type { OperatorRole } from '../../shared/console-kit/roles.js';
import type { BilledRecord } from '../billing/owners.js';
import type { UserFieldRules } from './users/fields.js';
import { publicMetadataOf, type StoredMetadata } from './users/metadata.js';

export interface UserDocument extends BilledRecord {
  /** Lower-case ASCII. */
  email: string;
  /** Absent if not provided. */
  name?: string;
  /** The language of the browser at the registration, for e-mails. Absent if none is available in it. */
  locale?: string;
  /** Absent until the user has chosen a password. Imported hashes stay in their original format. */
  passwordHash?: string;
  /** Incremented by every new password, so that a rehash cannot overwrite one. */
  passwordVersion: number;
  emailVerified: boolean;
  /** Incremented by every address change; absent before the first. */
  emailVersion?: number;
  /** In the application. Absent until some are given. */
  roles?: readonly string[];
  /** In the admin area; absent for everybody but operators. */
  operatorRole?: OperatorRole;
  /** Incremented by every change of the name, the address, the roles, the fields and the metadata by user or host, so that none is lost; absent before the first. */
  profileVersion?: number;
  /** When the address was last registered again. Written so that a registration takes as long as that of a new address. */
  registrationRepeatedAt?: number;
  /** Set while the account must not sign in. */
  suspendedAt?: number;
  /** Incremented to end sessions: those of an earlier epoch are invalid, except `keptSession`. */
  sessionEpoch: number;
  keptSession?: string;
  /** Incremented by every change of what gives access to the account beside the password; absent before the first. */
  signInRevision?: number;
  /** SHA-256 of the newest token that resets the password. */
  resetHash?: string;
  resetExpiresAt?: number;
  /** SHA-256 of the newest token that verifies the address. */
  verifyHash?: string;
  verifyExpiresAt?: number;
  /** SHA-256 of the newest token that changes the address to `newEmail`. */
  changeHash?: string;
  changeExpiresAt?: number;
  newEmail?: string;
  /** SHA-256 of the newest token that allows signing in from a new address while the account is throttled. */
  unlockHash?: string;
  unlockExpiresAt?: number;
  /** The last link that was used, unless its effect was changed since. */
  usedLink?: UsedUserLink;
  /** JSON objects of the host: see `metadata.ts`. Absent if they are empty. */
  publicMetadata?: string;
  privateMetadata?: string;
  /** A JSON object of the values of the host's fields: see `fields.ts`. Absent if it is empty. */
  fields?: string;
  /** What operators have written about the user, and when; the time of a later note is always later. */
  note?: { text: string; by: string; at: number };
  /** Incremented when the user becomes a member of an organization; absent before the first. */
  organizationRev?: number;
  createdAt: number;
}

export interface UsedUserLink extends UsedLink {
  kind: 'reset' | 'verify' | 'change' | 'unlock';
  /** Whether it has replaced the password, beside confirming an address. */
  passwordChanged?: boolean;
}

export interface SessionDocument extends Device {
  id: string;
  userId: string;
  /** `sessionEpoch` of the user when the session started. */
  epoch: number;
  /** SHA-256 of the identifier of the current refresh token. */
  currentId: string;
  /** SHA-256 of the identifier of the previous refresh token, which returns the current one for a short time. */
  previousId?: string;
  rotatedAt: number;
  /** When it was last used without an exchange of its token, as far as it is recorded; absent before the first. */
  seenAt?: number;
  /** The last use on a day (UTC) before that of the last one. */
  activeBefore?: number;
  createdAt: number;
  /** When and how the user last proved the identity; absent: at `createdAt`, by password. */
  authenticatedAt?: number;
  amr?: readonly string[];
  /** The organization that the user has chosen in it. */
  organizationId?: string;
  /** The operator who acts as the user, and the `sessionEpoch` of the operator at the start. */
  impersonator?: Impersonator;
  impersonatorEpoch?: number;
  /** Expiration of the current refresh token. */
  expiresAt: number;
  revokedAt?: number;
}

/** The fields to set with a change of the address or the name; none if no other system stores them. */
export type ProfileMark = () => { profileChangedAt?: number };

export type Users = Collection<UserDocument>;
export type Sessions = Collection<SessionDocument>;

export const USER_ID_PREFIX = 'usr_';

export function userCollection(store: Store): Users {
  return store.collection<UserDocument>('users', {
    unique: ['email'],
    indexes: [
      ['createdAt'],
      ['deletingAt'],
      ['profileChangedAt'],
      ['suspendedAt'],
      ['emailVerified', 'createdAt'],
      ['subscriptionPlan', 'createdAt'],
    ],
    sparse: ['operatorRole'],
    fields: ['resetHash', 'verifyHash', 'changeHash', 'unlockHash'],
    text: ['email', 'name'],
    numbers: [
      'createdAt',
      'deletingAt',
      'profileChangedAt',
      'suspendedAt',
      'passwordVersion',
      'sessionEpoch',
      'signInRevision',
      'subscriptionRev',
      'profileVersion',
    ],
    booleans: ['emailVerified'],
    view: {
      name: 'user_view',
      columns: {
        id: ['text', 'id'],
        email: ['text', 'email'],
        name: ['text', 'name'],
        created_at: ['time', 'createdAt'],
        email_verified: ['boolean', 'emailVerified'],
        suspended: ['presence', 'suspendedAt'],
        subscription_plan: ['text', 'subscriptionPlan'],
        subscription_status: ['text', 'subscriptionStatus'],
        granted_plan: ['text', 'grant', 'plan'],
        granted_until: ['time', 'grant', 'until'],
      },
    },
  });
}

/** A new user with the defaults of every field. */
export function newUserDocument(
  given: {
    id?: string | undefined;
    email: string;
    name?: string | undefined;
    locale?: string | undefined;
    passwordHash?: string | undefined;
    emailVerified: boolean;
    metadata?: StoredMetadata;
    fields?: string | undefined;
  },
  createdAt: number,
  { clock, random }: { clock: Clock; random: Random },
): UserDocument {
  const { email, name, locale, passwordHash, emailVerified, metadata, fields } = given;
  return {
    id: given.id ?? newId(USER_ID_PREFIX, clock, random),
    email: canonicalEmail(email),
    ...(name ? { name: name.trim() } : {}),
    ...(locale ? { locale } : {}),
    ...(passwordHash ? { passwordHash } : {}),
    ...metadata,
    ...(fields ? { fields } : {}),
    passwordVersion: 1,
    emailVerified,
    sessionEpoch: 0,
    subscriptionStatus: 'none',
    subscriptionPlan: 'free',
    createdAt,
  };
}

/** The fields of the links that a new password invalidates. */
export const PASSWORD_BOUND_LINK_FIELDS = [
  'resetHash',
  'resetExpiresAt',
  'changeHash',
  'changeExpiresAt',
  'newEmail',
  'unlockHash',
  'unlockExpiresAt',
] as const;
/** The fields of every link, which suspension and deletion invalidate. */
export const ALL_LINK_FIELDS = [...PASSWORD_BOUND_LINK_FIELDS, 'verifyHash', 'verifyExpiresAt'] as const;

/** Whether the account is suspended or being deleted, so that no login succeeds. */
export const isDisabled = ({ suspendedAt, deletingAt }: UserDocument): boolean =>
  (suspendedAt ?? deletingAt) !== undefined;

/** Whether a session may be used. Sessions of an earlier epoch are invalid, except `keptSession`. */
export function isSessionValid(user: UserDocument, session: SessionDocument, now: number): boolean {
  return (
    session.userId === user.id &&
    session.revokedAt === undefined &&
    session.expiresAt > now &&
    !isDisabled(user) &&
    (session.epoch === user.sessionEpoch || session.id === user.keptSession)
  );
}

export function sessionCollection(store: Store): Sessions {
  return store.collection<SessionDocument>('sessions', {
    indexes: [['userId', 'createdAt'], ['expiresAt']],
    fields: ['currentId'],
    numbers: ['createdAt', 'expiresAt', 'revokedAt'],
  });
}

/** Converts a user to its public representation, with the current subscription. */
export type PresentUser = (user: UserDocument) => User;

/** @param roles those of the application: others, which it has given up, count no longer */
export function toUserView(
  user: UserDocument,
  subscription: SubscriptionSummary,
  roles?: readonly string[],
  userFields?: UserFieldRules,
): User {
  return {
    id: user.id,
    email: user.email,
    name: user.name ?? '',
    createdAt: toTimestamp(user.createdAt),
    emailVerified: user.emailVerified,
    ...(roles && { roles: roles.filter((role) => user.roles?.includes(role)) }),
    subscription,
    ...publicMetadataOf(user),
    ...userFields?.present(user.fields),
  };
}

export function toSessionView(session: SessionDocument): Session {
  const createdAt = toTimestamp(session.createdAt);
  const { authenticatedAt, impersonator } = session;
  return {
    id: session.id,
    createdAt,
    expiresAt: toTimestamp(session.expiresAt),
    authenticatedAt: authenticatedAt === undefined ? createdAt : toTimestamp(authenticatedAt),
    amr: [...(session.amr ?? PASSWORD_ONLY)],
    ...(session.organizationId !== undefined && { organizationId: session.organizationId }),
    ...(impersonator && { impersonator }),
  };
}

/** From where a session was started, as far as it is known. */
export const deviceIn = ({ browser, system, place }: Device): Device => ({
  ...(browser !== undefined && { browser }),
  ...(system !== undefined && { system }),
  ...(place !== undefined && { place }),
});

/** How a user signed in (RFC 8176): first with a password, at another provider or with a mailed code, then with a second factor. */
export const FIRST_FACTOR = { password: 'pwd', federated: 'fed', code: 'otp' } as const;
export type FirstFactor = (typeof FIRST_FACTOR)[keyof typeof FIRST_FACTOR];
export const SECOND_FACTOR = { otp: ['otp', 'mfa'], recovery: ['rec', 'mfa'] } as const;
const PASSWORD_ONLY = [FIRST_FACTOR.password];
/** A passkey proves a key and, because the user is verified, a second factor. */
export const PASSKEY = ['pop', 'user', 'mfa'] as const;

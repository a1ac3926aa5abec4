import { type Session, type SubscriptionSummary, toTimestamp, type User } from '../http/schemas.js';
import type { Collection, Store } from '../storage/collection.js';

export interface UserDocument {
  id: string;
  /** Lower-case ASCII. */
  email: string;
  /** Absent when the user gave none. */
  name?: string;
  /** Absent until its owner has chosen a password. Imported ones are in the form of where they come from. */
  passwordHash?: string;
  /** Raised by every new password; a rehash must not overwrite one. */
  passwordVersion: number;
  emailVerified: boolean;
  /** Raised by every change of the address; absent before the first. */
  emailVersion?: number;
  /** Absent while the account may sign in. */
  suspendedAt?: number;
  /** A session made in an earlier epoch is dead, unless it is `keptSession`. */
  sessionEpoch: number;
  keptSession?: string;
  /** SHA-256 of the newest link that lets its reader choose a password. */
  resetHash?: string;
  resetExpiresAt?: number;
  /** The same of the link that confirms the address. */
  verifyHash?: string;
  verifyExpiresAt?: number;
  /** The same of the link, sent to `newEmail`, that makes it the address. */
  changeHash?: string;
  changeExpiresAt?: number;
  newEmail?: string;
  /** The same of the link that lets its reader sign in from a new place while the account is throttled. */
  unlockHash?: string;
  unlockExpiresAt?: number;
  /** Since when the account is being deleted. Nothing brings it back. */
  deletingAt?: number;
  /** What billing last found to be the best subscription. */
  subscriptionStatus: string;
  subscriptionPlan: string;
  /** The subscriptions that may entitle, as of the `subscriptionRev` it names. Earlier versions do not write it. */
  subscriptionsHeld?: {
    rev: number;
    terms: {
      id: string;
      status: string;
      plan: string;
      startedAt: number;
      trialEnd?: number;
      pastDueSince?: number;
    }[];
  };
  /** The plan that the operator gave to the user. */
  grant?: { plan: string; since: number; until?: number };
  /** Raised by every such finding; absent before the first. */
  subscriptionRev?: number;
  createdAt: number;
}

export interface SessionDocument {
  id: string;
  userId: string;
  /** `sessionEpoch` of the user when the session began. */
  epoch: number;
  /** SHA-256 of the identifier of the one refresh token that may be used next. */
  currentId: string;
  /** The one before, which inside the window after `rotatedAt` still gets the same successor. */
  previousId?: string;
  rotatedAt: number;
  createdAt: number;
  /** End of the current refresh token. */
  expiresAt: number;
  revokedAt?: number;
}

export type Users = Collection<UserDocument>;
export type Sessions = Collection<SessionDocument>;

export function userCollection(store: Store): Users {
  return store.collection<UserDocument>('users', {
    unique: ['email'],
    indexes: [['createdAt'], ['deletingAt']],
    fields: [
      'passwordVersion',
      'sessionEpoch',
      'suspendedAt',
      'emailVerified',
      'subscriptionRev',
      'resetHash',
      'verifyHash',
      'changeHash',
      'unlockHash',
    ],
  });
}

/** Links that end with the password, and those that end with the account. */
export const RECOVERY_LINKS = [
  'resetHash',
  'resetExpiresAt',
  'changeHash',
  'changeExpiresAt',
  'newEmail',
  'unlockHash',
  'unlockExpiresAt',
] as const;
export const ALL_LINKS = [...RECOVERY_LINKS, 'verifyHash', 'verifyExpiresAt'] as const;

/** Whether nobody may enter, whatever they prove. */
export const isClosed = ({ suspendedAt, deletingAt }: UserDocument): boolean =>
  (suspendedAt ?? deletingAt) !== undefined;

/** The value of a version field of a user, 0 before its first change; `null` when there is no such user. */
export async function versionOf(
  users: Pick<Users, 'findOne'>,
  userId: string,
  versionField: string,
): Promise<number | null> {
  const user = await users.findOne({ id: userId });
  if (!user) return null;
  const { passwordVersion, emailVersion = 0 } = user;
  const versions: Record<string, number> = { passwordVersion, emailVersion };
  return versions[versionField] ?? 0;
}

export function sessionCollection(store: Store): Sessions {
  return store.collection<SessionDocument>('sessions', {
    indexes: [['userId', 'createdAt'], ['expiresAt']],
    fields: ['currentId', 'revokedAt'],
  });
}

/** The user as clients see it, with what billing says of them at this moment. */
export type ViewOf = (user: UserDocument) => Promise<User>;

export function userView(user: UserDocument, subscription: SubscriptionSummary): User {
  return {
    id: user.id,
    email: user.email,
    name: user.name ?? '',
    createdAt: toTimestamp(user.createdAt),
    emailVerified: user.emailVerified,
    subscription,
  };
}

export function sessionView(session: SessionDocument): Session {
  return {
    id: session.id,
    createdAt: toTimestamp(session.createdAt),
    expiresAt: toTimestamp(session.expiresAt),
  };
}

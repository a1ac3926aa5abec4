import { toTimestamp } from '../kernel/schemas.js';
import { firstOf } from '../storage/pages.js';
import type { Sessions, UserDocument, Users, ViewOf } from './store.js';

/** What is stored of an account, for its owner: everything but secrets, hashes and the counters that guard them. */
export interface AccountRecords {
  recordsOf(userId: string): Promise<{ user: object | null; sessions: object[] }>;
}

const grantRecord = ({ plan, since, until }: NonNullable<UserDocument['grant']>) => ({
  plan,
  since: toTimestamp(since),
  ...(until !== undefined && { until: toTimestamp(until) }),
});

const MOST_SESSIONS = 10_000;

export function createAccountRecords({
  users,
  sessions,
  viewOf,
}: {
  users: Users;
  sessions: Sessions;
  viewOf: ViewOf;
}): AccountRecords {
  return {
    async recordsOf(userId) {
      const [user, items] = await Promise.all([
        users.findOne({ id: userId }),
        firstOf(sessions, { where: { userId }, sort: 'createdAt', desc: true }, MOST_SESSIONS),
      ]);
      return {
        user: user && {
          ...(await viewOf(user)),
          ...(user.newEmail !== undefined && { newEmail: user.newEmail }),
          ...(user.grant && { granted: grantRecord(user.grant) }),
        },
        sessions: items.map(({ id, createdAt, rotatedAt, expiresAt, revokedAt }) => ({
          id,
          createdAt: toTimestamp(createdAt),
          refreshedAt: toTimestamp(rotatedAt),
          expiresAt: toTimestamp(expiresAt),
          ...(revokedAt !== undefined && { revokedAt: toTimestamp(revokedAt) }),
        })),
      };
    },
  };
}

import { toTimestamp } from '../http/schemas.js';
import { firstPagesOf, mapPages } from '../storage/pages.js';
import type { Sessions, UserDocument, Users, ViewOf } from './store.js';

/** What is stored of an account, for its owner: everything but secrets, hashes and the counters that guard them. */
export interface AccountRecords {
  recordsOf(userId: string): Promise<{ user: object | null; sessions: AsyncIterable<object[]> }>;
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
      const user = await users.findOne({ id: userId });
      const newestFirst = { where: { userId }, sort: 'createdAt', desc: true } as const;
      return {
        user: user && {
          ...(await viewOf(user)),
          ...(user.newEmail !== undefined && { newEmail: user.newEmail }),
          ...(user.grant && { granted: grantRecord(user.grant) }),
        },
        sessions: mapPages(firstPagesOf(sessions, newestFirst, MOST_SESSIONS), (session) => ({
          id: session.id,
          createdAt: toTimestamp(session.createdAt),
          refreshedAt: toTimestamp(session.rotatedAt),
          expiresAt: toTimestamp(session.expiresAt),
          ...(session.revokedAt !== undefined && { revokedAt: toTimestamp(session.revokedAt) }),
        })),
      };
    },
  };
}

import type { FastifyReply, FastifyRequest } from 'fastify';
import { access, type FastifyTypebox, requestSource } from '../../../core/http/routes.js';
import { ok, toTimestamp } from '../../../core/http/schemas.js';
import { streamJson } from '../../../core/http/streams.js';
import type { Clock } from '../../../core/kernel/clock.js';
import { httpErrors } from '../../../core/kernel/errors.js';
import { auditActor, type ListedAudit, type Operator } from '../../../core/ops/audit.js';
import type { AccountData } from '../../../core/server/contributions.js';
import { firstPagesOf, mapPages } from '../../../core/storage/pages.js';
import type { Throttle } from '../../../core/throttle/throttle.js';
import { authLimits } from '../limits.js';
import { lastUseOf } from '../sessions/activity.js';
import {
  deviceIn,
  type PresentUser,
  type Sessions,
  toSessionView,
  type UserDocument,
  type Users,
} from '../store.js';
import { valuesIn } from './fields.js';
import { privateMetadataOf } from './metadata.js';
import { userNotFound } from './users.js';

/** Streams the export of a user. @throws RATE_LIMITED */
export type SendExport = (
  request: FastifyRequest,
  reply: FastifyReply,
  userId: string,
) => Promise<FastifyReply>;

/** The `Retry-After` of a request while another export of the same user is running. */
const RETRY_AFTER_RUNNING_SECONDS = '10';

/** Exports are limited in number per user, one at a time. */
export function createSendExport({
  exportAccount,
  throttle,
}: {
  exportAccount: ExportAccount;
  throttle: Throttle;
}): SendExport {
  const running = new Set<string>();

  return async (request, reply, id) => {
    // One at a time, so that a client that does not read its exports keeps one stream open at most.
    if (running.has(id))
      throw httpErrors.RATE_LIMITED({ headers: { 'retry-after': RETRY_AFTER_RUNNING_SECONDS } });
    running.add(id);
    try {
      await throttle.countKey(authLimits.export, id, requestSource(request).ip);
      return streamJson(request, reply, ok(await exportAccount(id)), () => running.delete(id));
    } catch (error) {
      running.delete(id);
      throw error;
    }
  };
}

export async function exportPlugin(
  fastify: FastifyTypebox,
  { sendExport }: { sendExport: SendExport },
): Promise<void> {
  // As the page does: it contains what a stolen session should not reveal.
  fastify.get('/user/export', { config: access('recent-user') }, (request, reply) =>
    sendExport(request, reply, request.saas.user.id),
  );
}

export interface AccountExportDependencies {
  users: Users;
  sessions: Sessions;
  presentUser: PresentUser;
  audit: ListedAudit;
  /** What the other domains store about a user. */
  accountData: AccountData;
  clock: Clock;
}

const MAX_SESSIONS = 10_000;

/** The times of a user that nothing else shows. */
const USER_TIMES = ['profileChangedAt', 'registrationRepeatedAt', 'suspendedAt', 'deletingAt'] as const;

/** Exports everything stored about a user except secrets, hashes and counters. Long lists are async iterables of pages. */
export type ExportAccount = ReturnType<typeof createAccountExport>;

export function createAccountExport(deps: AccountExportDependencies) {
  const { users, sessions, presentUser, audit, accountData, clock } = deps;

  const exportUser = (user: UserDocument) => ({
    ...presentUser(user),
    ...(user.locale !== undefined && { locale: user.locale }),
    ...privateMetadataOf(user),
    // Also those that are not shown any more.
    ...(user.fields !== undefined && { fields: valuesIn(user.fields) }),
    ...(user.newEmail !== undefined && { newEmail: user.newEmail }),
    // Not who has written it: the name of an operator is personal data of another person.
    ...(user.note && { note: { text: user.note.text, at: toTimestamp(user.note.at) } }),
    ...(user.grant && { granted: exportGrant(user.grant) }),
    ...Object.fromEntries(
      USER_TIMES.flatMap((name) => (user[name] === undefined ? [] : [[name, toTimestamp(user[name])]])),
    ),
  });

  return async (userId: string): Promise<Record<string, unknown>> => {
    const user = await users.findOne({ id: userId });
    const newestFirst = { where: { userId }, sort: 'createdAt', desc: true } as const;
    return {
      exportedAt: toTimestamp(clock.now()),
      user: user && exportUser(user),
      sessions: mapPages(firstPagesOf(sessions, newestFirst, MAX_SESSIONS), (session) => ({
        ...toSessionView(session),
        refreshedAt: toTimestamp(lastUseOf(session)),
        ...deviceIn(session),
        ...(session.revokedAt !== undefined && { revokedAt: toTimestamp(session.revokedAt) }),
      })),
      ...(await accountData.read(userId)),
      audit: mapPages(audit.listOf(userId), ({ at, event, by, actor, ip, detail }) => ({
        at: toTimestamp(at),
        event,
        // The address of an operator is personal data of another person.
        ip: by === undefined ? ip : 'operator',
        ...(actor && { actor }),
        ...(detail && { detail }),
      })),
    };
  };
}

/** The export for an operator, by default the host, with a record in the audit. @throws NOT_FOUND */
export const createOperatedExport =
  ({
    users,
    audit,
    exportAccount,
  }: Pick<AccountExportDependencies, 'users' | 'audit'> & { exportAccount: ExportAccount }) =>
  async (id: string, operator?: Operator): Promise<Record<string, unknown>> => {
    if (!(await users.findOne({ id }))) throw userNotFound();
    await audit.record({ event: 'user.exported', subject: id, ...auditActor(operator) });
    return exportAccount(id);
  };

const exportGrant = ({ plan, since, until }: NonNullable<UserDocument['grant']>) => ({
  plan,
  since: toTimestamp(since),
  ...(until !== undefined && { until: toTimestamp(until) }),
});

import { finished, type Readable } from 'node:stream';
import type { FastifyRequest } from 'fastify';
import { jsonStream } from '../http/json-stream.js';
import { ok, toTimestamp } from '../http/schemas.js';
import { access, originOf, type Scope } from '../http/scope.js';
import type { Clock } from '../kernel/clock.js';
import { httpErrors } from '../kernel/errors.js';
import type { ListedAudit } from '../ops/audit.js';
import { firstPagesOf, mapPages } from '../storage/pages.js';
import type { Throttle } from '../throttle/throttle.js';
import { authLimits } from './limits.js';
import type { Sessions, UserDocument, Users, ViewOf } from './store.js';

/** The export of everything that is stored about the caller, except secrets, hashes and the counters that guard them. */

export interface ExportPluginOptions {
  /** Everything that is stored about a user. Long lists are async iterables of their pages. */
  exportOf(userId: string): Promise<Record<string, unknown>>;
  throttle: Pick<Throttle, 'countKey'>;
}

/** Seconds after which a client that has one export under way may ask for the next. */
const RETRY_AFTER_RUNNING_SECONDS = '10';

/** Serves the export: a limited number per user, one at a time, streamed. */
export async function exportPlugin(scope: Scope, { exportOf, throttle }: ExportPluginOptions): Promise<void> {
  const running = new Set<string>();

  scope.get('/user/export', { config: access('user') }, async (request, reply) => {
    const { id } = request.saas.user;
    // A client that does not read its export holds this one, and no more.
    if (running.has(id))
      throw httpErrors.RATE_LIMITED({ headers: { 'retry-after': RETRY_AFTER_RUNNING_SECONDS } });
    running.add(id);
    try {
      await throttle.countKey(authLimits.export, id, originOf(request).ip);
      const body = jsonStream(ok(await exportOf(id)), () => running.delete(id));
      endWithConnection(body, request);
      return reply.type('application/json; charset=utf-8').send(body);
    } catch (error) {
      running.delete(id);
      throw error;
    }
  });
}

/** Node does not close an answer that waits behind another one when their connection ends. */
function endWithConnection(body: Readable, { raw: { socket } }: FastifyRequest): void {
  const end = () => body.destroy();
  socket.once('close', end);
  finished(body, () => socket.off('close', end));
  if (socket.destroyed) end();
}

export interface AccountExport {
  users: Users;
  sessions: Sessions;
  viewOf: ViewOf;
  audit: Pick<ListedAudit, 'listOf'>;
  /** What other domains store about a user, by its name in the export. */
  others: Record<string, (userId: string) => Promise<unknown> | AsyncIterable<unknown[]>>;
  clock: Clock;
}

const MAX_SESSIONS = 10_000;

export function createAccountExport(deps: AccountExport): Pick<ExportPluginOptions, 'exportOf'> {
  const { users, sessions, viewOf, audit, others, clock } = deps;

  const accountOf = async (user: UserDocument) => ({
    ...(await viewOf(user)),
    ...(user.newEmail !== undefined && { newEmail: user.newEmail }),
    ...(user.grant && { granted: grantView(user.grant) }),
  });

  return {
    async exportOf(userId) {
      const user = await users.findOne({ id: userId });
      const newestFirst = { where: { userId }, sort: 'createdAt', desc: true } as const;
      const ofOthers = Object.entries(others).map(async ([name, recordsOf]) => [
        name,
        await recordsOf(userId),
      ]);
      return {
        exportedAt: toTimestamp(clock.now()),
        user: user && (await accountOf(user)),
        sessions: mapPages(firstPagesOf(sessions, newestFirst, MAX_SESSIONS), (session) => ({
          id: session.id,
          createdAt: toTimestamp(session.createdAt),
          refreshedAt: toTimestamp(session.rotatedAt),
          expiresAt: toTimestamp(session.expiresAt),
          ...(session.revokedAt !== undefined && { revokedAt: toTimestamp(session.revokedAt) }),
        })),
        ...Object.fromEntries(await Promise.all(ofOthers)),
        audit: mapPages(audit.listOf(userId), ({ at, event, ip, detail }) => ({
          at: toTimestamp(at),
          event,
          ip,
          ...(detail && { detail }),
        })),
      };
    },
  };
}

const grantView = ({ plan, since, until }: NonNullable<UserDocument['grant']>) => ({
  plan,
  since: toTimestamp(since),
  ...(until !== undefined && { until: toTimestamp(until) }),
});

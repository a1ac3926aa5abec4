import { finished, type Readable } from 'node:stream';
import type { FastifyRequest } from 'fastify';
import { jsonStream } from '../../http/json-stream.js';
import { ok } from '../../http/schemas.js';
import { access, originOf, type Scope } from '../../http/scope.js';
import { httpErrors } from '../../kernel/errors.js';
import type { Throttle } from '../../throttle/throttle.js';
import { authLimits } from '../limits.js';

export interface ExportPluginOptions {
  /** Everything that is stored about a user. Long lists are async iterables of their pages. */
  exportOf(userId: string): Promise<Record<string, unknown>>;
  throttle: Pick<Throttle, 'countOf'>;
}

/** Seconds after which a client that has one export under way may ask for the next. */
const RETRY_AFTER_RUNNING = '10';

/** The export of everything that is stored about the caller: a limited number per user, one at a time, streamed. */
export async function exportPlugin(scope: Scope, { exportOf, throttle }: ExportPluginOptions): Promise<void> {
  const running = new Set<string>();

  scope.get('/user/export', { config: access('user') }, async (request, reply) => {
    const { id } = request.saas.user;
    // A client that does not read its export holds this one, and no more.
    if (running.has(id)) throw httpErrors.RATE_LIMITED({ headers: { 'retry-after': RETRY_AFTER_RUNNING } });
    running.add(id);
    try {
      await throttle.countOf(authLimits.export, id, originOf(request).ip);
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

import { Type } from 'typebox';
import { option } from '../config/options.js';
import { parseBearer } from '../http/authorization.js';
import { access, authenticatedByRoute, type FastifyTypebox, type Guard } from '../http/routes.js';
import { httpErrors } from '../kernel/errors.js';
import { secretsEqual, secretWeakness } from '../kernel/secrets.js';
import type { Jobs } from './jobs.js';

/** Where a process does not run between requests, a scheduler runs the jobs over HTTP instead of timers. */

export function cronOption(env: string) {
  return option(Type.Optional(Type.String({ minLength: 32 })), {
    env,
    doc: 'Secret of at least 32 characters with which a scheduler runs the background jobs, by `GET` or `POST` to `/cron` below the prefix. The server then runs none by itself: docs/operate/serverless.md.',
    secret: true,
    safe: (secret) => (secret === undefined ? undefined : secretWeakness(secret, 32)),
  });
}

/** The guard of `/cron`. Without a secret there is no such route. */
export function cronGuard(secret: string | undefined): Guard {
  if (secret === undefined) return authenticatedByRoute;
  return async ({ headers: { authorization } }) => {
    const presented = parseBearer(authorization);
    if (presented === undefined || !secretsEqual(presented, secret))
      throw httpErrors.UNAUTHENTICATED({
        message: 'Send the secret of the scheduler: Authorization: Bearer <secret>.',
        headers: { 'www-authenticate': 'Bearer realm="cron"' },
      });
  };
}

/** The route that runs the jobs that are due. Schedulers of platforms send `GET` or `POST`. */
export async function cronPlugin(
  fastify: FastifyTypebox,
  { jobs }: { jobs: Pick<Jobs, 'runDue'> },
): Promise<void> {
  const config = access('cron', { duringMaintenance: true });
  fastify.route({
    method: ['GET', 'POST'],
    url: '/cron',
    config,
    async handler(_request, reply) {
      const failed = await jobs.runDue();
      if (failed.length > 0)
        throw httpErrors.INTERNAL({
          message: `These jobs have failed, as the log says: ${failed.join(', ')}.`,
        });
      return reply.code(204).send();
    },
  });
}

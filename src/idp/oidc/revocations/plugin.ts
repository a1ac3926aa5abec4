import { Type } from 'typebox';
import { access, type FastifyTypebox } from '../../../core/http/routes.js';
import { SECOND } from '../../../core/kernel/clock.js';
import { httpErrors } from '../../../core/kernel/errors.js';
import type { OidcServices } from '../services.js';
import type { RevocationFeed } from './feed.js';

/** The longest time for which an answer is held back: below the timeouts of proxies. */
const MAX_WAIT_S = 25;

const Headers = Type.Object({
  prefer: Type.Optional(
    Type.String({
      accepts: 'preferences such as wait=10',
      maxLength: 256,
      pattern: '^[^\\p{Cc}\\p{Cs}]*$',
    }),
  ),
});

/** The list of revoked access tokens for resource servers. There is none until the first resource is registered. */
export async function revocationsPlugin(fastify: FastifyTypebox, services: OidcServices): Promise<void> {
  let loaded: Promise<RevocationFeed> | undefined;
  const load = (): Promise<RevocationFeed> => {
    loaded ??= import('./feed.js').then(({ createRevocationFeed }) => createRevocationFeed(services));
    return loaded;
  };
  const isStopping = new AbortController();

  fastify.get(
    '/revocations',
    { config: access('public', { unmetered: true }), schema: { headers: Headers } },
    async (request, reply) => {
      if (!(await hasList(services))) throw httpErrors.NOT_FOUND();
      const feed = await load();
      const known = request.headers['if-none-match'];
      const wait = waitOf(request.headers.prefer);
      let list = await feed.read();
      if (known === list.etag && wait > 0) {
        const gone = new AbortController();
        reply.raw.once('close', () => gone.abort());
        const ends = [AbortSignal.timeout(wait * SECOND), gone.signal, isStopping.signal];
        await feed.change(list.etag, AbortSignal.any(ends));
        // In an outage of the store, an unchanged list is no confirmation.
        list = await feed.read();
        reply.header('preference-applied', `wait=${wait}`);
      }
      reply.headers({ etag: list.etag, 'cache-control': 'public, max-age=1', vary: 'Prefer' });
      if (known === list.etag) return reply.code(304).send();
      return reply.type('application/revocations+jwt').send(await list.sign());
    },
  );

  // Before the server waits for the requests that are in progress.
  fastify.addHook('preClose', async () => {
    isStopping.abort();
    (await loaded)?.close();
  });
}

/** Also after the removal of the last resource, while tokens for it could be valid. */
async function hasList({ resources, revocationDocuments, clock }: OidcServices): Promise<boolean> {
  if (await resources.hasAny()) return true;
  return (await revocationDocuments.count({ expiresAt: { gt: clock.now() } }, 1)) > 0;
}

/** RFC 7240 §4.3, in seconds. */
function waitOf(prefer: string | undefined): number {
  const [, seconds] = /(?:^|[,;\s])wait=(\d{1,5})(?:$|[,;\s])/i.exec(prefer ?? '') ?? [];
  return Math.min(Number(seconds ?? 0), MAX_WAIT_S);
}

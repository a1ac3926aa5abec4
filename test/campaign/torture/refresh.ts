/** A client that exchanges a refresh token as it should, of either product. */
import type { Product } from './processes.js';
import type { Reply, Request, World } from './world.js';

export interface Refresh {
  product: Product;
  /** Identifies the token. */
  key: string;
  request: Request;
  /** Identifies the successor in an answer. */
  read(reply: Reply): string;
}

/** How often a client sends the same refresh twice at the same time, as two tabs of a browser do. */
const PAIRS = 0.2;

/** Repeats the refresh until there is a response. `null` if it was refused, which is a failure, or if the campaign has ended. */
export async function refreshHonestly(world: World, refresh: Refresh): Promise<Reply | null> {
  const { product, key, request, read } = refresh;
  const since = world.history.now();
  const attempt = () =>
    world.ask(product, request, { rule: 'successor', key, kind: 'write', what: 'refresh', read });
  for (let tries = 0; ; tries++) {
    const replies = await Promise.all(world.dice.happens(PAIRS) ? [attempt(), attempt()] : [attempt()]);
    const accepted = replies.find((reply) => reply?.status === 200);
    const refused = replies.find((reply) => reply && reply.status >= 400 && reply.status < 500);
    if (refused) recordRefusal(world, refresh, refused, since);
    // A request that is still under way must not arrive after the successor was used.
    if (accepted && (tries > 0 || replies.some((reply) => reply?.status !== 200))) await world.calm();
    if (accepted) return accepted;
    if (refused || world.isGivenUp(tries)) return null;
  }
}

function recordRefusal(
  world: World,
  { product, key }: Refresh,
  { status, body }: Reply,
  since: number,
): void {
  const code = typeof body?.error === 'string' ? body.error : body?.error?.code;
  world.history.add({
    ...{ rule: 'honest', key, kind: 'write', what: 'refresh', target: product === 'idp' ? 'idp' : 'saas' },
    ...{ start: since, end: world.history.now(), since, outcome: 'refused', detail: `${status} ${code}` },
  });
}

import { Type } from 'typebox';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { type Console, rootOf } from './console.js';

/** No identifier, name or address is longer. */
const MAX_LENGTH = 254;

/**
 * The page of the search field in the frame: what every list of the console finds. An identifier of exactly one thing leads to the page
 * of that.
 */
export function registerSearch(fastify: FastifyTypebox, console: Console): void {
  const text = { accepts: `a text of at most ${MAX_LENGTH} characters`, maxLength: MAX_LENGTH };
  const q = Type.Optional(Type.String({ ...text, pattern: '^[^\\p{Cc}\\p{Cs}]*$' }));
  const schema = { querystring: Type.Object({ q }) };
  fastify.get('/search', { config: console.config, schema }, async (request, reply) => {
    const searched = request.query.q?.trim() ?? '';
    const root = rootOf(request);
    const searches = searched === '' ? [] : console.searches;
    const found = (await Promise.all(searches.map((search) => search(searched, root)))).filter(
      (one) => one !== null,
    );
    const [page, other] = new Set(found.flatMap(({ identified }) => identified));
    if (page !== undefined && other === undefined) return console.redirect(request, reply, page);
    const tables = found.map(({ table, heading, moreHref }, index) => ({
      ...table,
      ...{ heading, moreHref, tableLabel: heading, id: `found-${index}`, note: false },
    }));
    return console.send(request, reply, {
      template: 'console-search',
      section: 'search',
      view: { title: 'Search', searched, isAsked: searched !== '', tables, hasFound: tables.length > 0 },
    });
  });
}

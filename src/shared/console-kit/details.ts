import type { FastifyRequest } from 'fastify';
import { type TSchema, Type } from 'typebox';
import type { View } from '../../core/http/pages.js';
import { access, type FastifyTypebox } from '../../core/http/routes.js';
import { Envelope, ok } from '../../core/http/schemas.js';
import { type Console, Done, Parameters, rootOf } from './console.js';
import { type tableOf, toMinute } from './lists.js';

/** A page about one thing: with `item` and if the console has an API, also as JSON. */
export interface Detail<Found> {
  /** The route, relative to the root, without a leading slash: `mails/:id`. */
  path: string;
  /** The entry of the navigation. */
  section: string;
  /** Default: a page of facts, actions and tables, whose view is a `DetailView`. */
  template?: string;
  /** The schema of the JSON. */
  item?: TSchema;
  /** @throws NOT_FOUND */
  find(parameters: Record<string, string>): Promise<Found>;
  /** @param root of the console as seen from the page */
  view(found: Found, root: string, request: FastifyRequest): View | DetailView | Promise<View | DetailView>;
}

export type DetailView = {
  title: string;
  facts: readonly DetailRow[];
  actions?: readonly { href: string; label: string }[];
  /** A button for a file whose creation the audit records; `token` is that of its form. */
  download?: { action: string; label: string; token: string };
  /** With the view of a table: see `tableOf`. */
  tables?: readonly (TableText & ReturnType<typeof tableOf>)[];
  texts?: readonly { id: string; heading: string; text: string }[];
  plots?: readonly { id: string; heading: string; markup: string; definition: string }[];
};

interface TableText {
  heading: string;
  empty?: string;
  /** The complete list. */
  moreHref?: string | undefined;
  note?: string;
}

export function registerDetail<Found>(
  fastify: FastifyTypebox,
  console: Console,
  { path, section, template = 'console-detail', item, find, view }: Detail<Found>,
): void {
  const read = (request: FastifyRequest) => find(request.params as Record<string, string>);
  const schema = { params: Parameters, querystring: Type.Object({ done: Done }) };
  fastify.get(`/${path}`, { config: console.config, schema }, async (request, reply) => {
    const shown = await view(await read(request), rootOf(request), request);
    return console.send(request, reply, {
      template,
      section,
      view: template === 'console-detail' ? completed(shown as DetailView) : shown,
    });
  });

  if (console.api === undefined || item === undefined) return;
  const answer = { params: Parameters, response: { 200: Envelope(item) } };
  fastify.get(
    `${console.api}/${path}`,
    { config: access(console.access), schema: answer },
    // The compiler cannot relate it to its schema here; the serializer only writes what the schema names.
    async (request) => ok((await read(request)) as never),
  );
}

/** A line of the description of something: a text or a time. */
export interface DetailRow {
  label: string;
  /** Null: the line is left out. */
  text?: string | null;
  /** ISO 8601; null: the line is left out. */
  time?: string | null;
  /** A page about it. */
  href?: string | null;
  /** Whether the text is an identifier. */
  isCode?: boolean;
}

/** The view of `console-detail.html`, where a missing value must not be taken from the page. */
const completed = ({ facts, actions = [], tables = [], ...view }: DetailView): View => ({
  ...view,
  facts: facts
    .filter(({ text, time }) => text !== null && time !== null)
    .map(({ label, text, time, href = null, isCode = false }) => ({
      label,
      text: time ? toMinute(time) : (text ?? ''),
      time: time ?? false,
      href,
      isCode,
    })),
  actions,
  tables: tables.map((table, index) => ({ ...table, id: `table-${index}`, tableLabel: table.heading })),
});

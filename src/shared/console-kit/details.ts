import type { FastifyRequest } from 'fastify';
import { type TSchema, Type } from 'typebox';
import type { View } from '../../core/http/pages.js';
import { access, type FastifyTypebox } from '../../core/http/routes.js';
import { Envelope, ok } from '../../core/http/schemas.js';
import { type Console, Done, Locale, ownPath, Parameters, rootOf } from './console.js';
import { initialsOf } from './marks.js';
import type { tableOf } from './tables.js';

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
  /** Whether the query names a language, as `locale`. */
  isLocalized?: boolean;
  /** Whether it shows other pages in frames. */
  hasFrames?: boolean;
  /** @throws NOT_FOUND */
  find(parameters: Record<string, string>, query: { locale?: string }): Promise<Found>;
  /** @param root of the console as seen from the page */
  view(found: Found, root: string, request: FastifyRequest): View | DetailView | Promise<View | DetailView>;
}

export type DetailView = {
  title: string;
  /** A line below the title. */
  subtitle?: string;
  /** Whether the initials of the title stand beside it. */
  isPerson?: boolean;
  /** Whose initials stand there. Default: those of the title. */
  initials?: string | undefined;
  /** What the operator wants to know first. */
  answer?: DetailAnswer;
  facts: readonly DetailRow[];
  actions?: readonly DetailAction[];
  /** A button for a file whose creation the audit records; `token` is that of its form. */
  download?: { action: string; label: string; token: string };
  /** What happened, the newest first. */
  timeline?: readonly TimelineEntry[];
  /** What is used of limits; `most` is null without one. */
  limits?: readonly { label: string; text: string; used: number; most: number | null }[];
  /** What operators have written about it. */
  note?: { text: string; by: string; at: string } | false;
  /** The pages before and after it in the list that `label` names. */
  neighbours?: { label: string; previous: string | false; next: string | false };
  /** With the view of a table: see `tableOf`. More than two are shown one at a time, as tabs. */
  tables?: readonly (TableText & ReturnType<typeof tableOf>)[];
  texts?: readonly { id: string; heading: string; text: string }[];
};

export interface DetailAnswer {
  state: string;
  headline: string;
  detail: string;
}

export interface DetailAction {
  href: string;
  label: string;
  /** The menu in which it stands; without one, it is a button of its own or stands in the last menu. */
  menu?: string;
  /** Stands last and apart. */
  isDangerous?: boolean;
}

/** An action, if it applies. With `DANGEROUS` in place of the menu, it stands last and apart. */
export type ConditionalLink = [verb: string, label: string, applies: boolean, menu?: string];
export const DANGEROUS = 'dangerous';

/** Those that apply, below the page of `id`; absolute paths stay. */
export const linksBelow = (id: string, links: readonly ConditionalLink[]): DetailAction[] =>
  links
    .filter(([, , applies]) => applies)
    .map(([verb, label, , menu]) => ({
      href: verb.startsWith('/') ? verb : `${id}/${verb}`,
      label,
      ...(menu === DANGEROUS ? { isDangerous: true } : menu && { menu }),
    }));

export interface TimelineEntry {
  /** ISO 8601 */
  at: string;
  text: string;
  detail?: string | null;
  tone?: 'good' | 'warn' | 'bad';
}

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
  { path, section, template = 'console-detail', hasFrames = false, item, find, view, ...rest }: Detail<Found>,
): void {
  const query = rest.isLocalized === true ? { locale: Locale } : {};
  const read = (request: FastifyRequest) =>
    find(request.params as Record<string, string>, request.query as { locale?: string });
  const schema = { params: Parameters, querystring: Type.Object({ done: Done, tab: Done, ...query }) };
  fastify.get(`/${path}`, { config: console.config, schema }, async (request, reply) => {
    const shown = await view(await read(request), rootOf(request), request);
    return console.send(request, reply, {
      template,
      section,
      hasFrames,
      view:
        template === 'console-detail'
          ? completed(shown as DetailView, request.query.tab, ownPath(request))
          : shown,
    });
  });

  if (console.api === undefined || item === undefined) return;
  const answer = { params: Parameters, querystring: Type.Object(query), response: { 200: Envelope(item) } };
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
  /** Stands as a coloured word before the text. */
  state?: string;
}

/** The view of `console-detail.html`, where a missing value must not be taken from the page. */
function completed(
  { facts, actions = [], tables = [], timeline = [], isPerson, initials, ...view }: DetailView,
  tab: string | undefined,
  own: string,
): View {
  const named = tables.map((table) => ({
    note: false,
    ...table,
    id: slugOf(table.heading),
    tableLabel: table.heading,
  }));
  const hasTabs = named.length > MAX_TABLES;
  const current = hasTabs ? named.find(({ id }) => id === tab) : undefined;
  const isSummary = current === undefined;
  return {
    subtitle: false,
    answer: false,
    download: false,
    limits: [],
    note: false,
    neighbours: false,
    texts: [],
    ...view,
    initials: isPerson === true && initialsOf(initials ?? view.title),
    tools: toolsOf(actions),
    tabs: hasTabs && [
      { href: own, label: 'Summary', isCurrent: isSummary },
      ...named.map(({ id, heading, rows, moreHref }) => ({
        href: `${own}?tab=${id}`,
        label: heading,
        isCurrent: id === current?.id,
        count: `${rows.length}${moreHref === undefined ? '' : '+'}`,
      })),
    ],
    isSummary,
    hasTimeline: timeline.length > 0,
    timeline,
    facts: facts
      .filter(({ text, time }) => text !== null && time !== null)
      .map(({ state = false, text = '', ...fact }) => ({
        ...fact,
        state,
        text,
        isPlain: !fact.isCode && !fact.time,
      })),
    tables: current ? [current] : hasTabs ? [] : named,
    isBeside: isSummary && (timeline.length > 0 || view.answer !== undefined),
  };
}

/** More tables than these are shown one at a time. */
const MAX_TABLES = 2;
/** More buttons than these become a menu. */
const MAX_BUTTONS = 2;
const LAST_MENU = 'More';

const slugOf = (heading: string) => heading.toLowerCase().replace(/[^a-z]+/g, '-');

/** Buttons and menus beside the title; what is dangerous stands last in the last menu. */
function toolsOf(actions: readonly DetailAction[]) {
  const single = actions.filter(({ menu, isDangerous }) => menu === undefined && isDangerous !== true);
  const buttons = single.length > MAX_BUTTONS ? [] : single;
  const rest = actions
    .filter((action) => !buttons.includes(action))
    .map((action) => ({ ...action, menu: action.isDangerous ? LAST_MENU : (action.menu ?? LAST_MENU) }));
  const rank = ({ menu, isDangerous }: DetailAction) =>
    Number(menu === LAST_MENU) + Number(isDangerous ?? false);
  const sorted = rest.toSorted((one, other) => rank(one) - rank(other));
  const menus = [...new Set(sorted.map(({ menu }) => menu))];
  return [
    ...buttons,
    ...menus.map((label) => ({ label, entries: sorted.filter(({ menu }) => menu === label) })),
  ];
}

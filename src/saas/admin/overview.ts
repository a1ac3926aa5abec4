import { type Static, Type } from 'typebox';
import type { View } from '../../core/http/pages.js';
import { access, type FastifyTypebox } from '../../core/http/routes.js';
import { After, Envelope, ok, Timestamp, toTimestamp, type User } from '../../core/http/schemas.js';
import { sentenceOf } from '../../shared/console-kit/attention.js';
import { type Console, rootOf } from '../../shared/console-kit/console.js';
import { figureViews } from '../../shared/console-kit/key-figures.js';
import { writeEstimate } from '../../shared/console-kit/lists.js';
import {
  DEFAULT_PERIOD,
  type PeriodName,
  PeriodQuery,
  periodLinks,
} from '../../shared/console-kit/periods.js';
import { type Column, tableOf } from '../../shared/console-kit/tables.js';
import type { Duplicates } from '../billing/subscription/duplicates.js';
import { attentionTo } from './attention.js';
import type { AdminServices } from './services.js';
import { REFRESH_SECONDS, type Trends, type TrendsOf } from './trends.js';
import { planColumn, userColumn } from './users.js';

const LISTED_USERS = 10;

const Count = Type.Object({ count: Type.Integer(), isExact: Type.Boolean() });

/** The overview in the API: the counts of the tiles, what needs attention, and the values of the plots. */
const Overview = Type.Object({
  counts: Type.Object({ users: Count, sessions: Count, paymentEvents: Count }),
  /** The most important numbers of the period, as the page shows them, with the change against as much time before. */
  keyFigures: Type.Array(
    Type.Object({
      name: Type.String(),
      label: Type.String(),
      value: Type.String(),
      change: Type.Union([Type.String(), Type.Null()]),
      isUp: Type.Union([Type.Boolean(), Type.Null()]),
    }),
  ),
  attention: Type.Array(Type.Object({ name: Type.String(), text: Type.String() })),
  /** When the plots and `attention` were counted. */
  countedAt: Timestamp,
  plots: Type.Array(
    Type.Object({
      name: Type.String(),
      label: Type.String(),
      unit: Type.String(),
      definition: Type.String(),
      /** ISO 8601 dates or months, UTC. */
      days: Type.Array(Type.String()),
      series: Type.Array(
        Type.Object({
          name: Type.String(),
          /** Null where it is unknown. */
          values: Type.Array(Type.Union([Type.Number(), Type.Null()])),
        }),
      ),
      /** Counting ended at this value. */
      bound: Type.Union([Type.Number(), Type.Null()]),
    }),
  ),
});

/** The start page. */
export async function overviewPlugin(
  fastify: FastifyTypebox,
  services: AdminServices & { trendsOf: TrendsOf },
): Promise<void> {
  const { console, users, trendsOf } = services;
  const read = async (period: PeriodName, after?: string) =>
    readFigures(services, await trendsOf(period), after);
  // `duplicates`: the page of the users with duplicate subscriptions.
  const querystring = Type.Object({ period: PeriodQuery, duplicates: After });

  fastify.get('/', { config: console.config, schema: { querystring } }, async (request, reply) => {
    const { period = DEFAULT_PERIOD, duplicates } = request.query;
    const [figures, newest] = await Promise.all([
      read(period, duplicates),
      users.directory.listNewest(LISTED_USERS),
    ]);
    const view = createView(console, figures, { period, newest, root: rootOf(request) });
    return console.send(request, reply, { template: 'console-overview', section: '', view });
  });

  fastify.get(
    `${console.api}/overview`,
    {
      config: access(console.access),
      schema: { querystring: Type.Object({ period: PeriodQuery }), response: { 200: Envelope(Overview) } },
    },
    async ({ query: { period = DEFAULT_PERIOD } }) => ok(toOverview(console, await read(period))),
  );
}

type Figures = Awaited<ReturnType<typeof readFigures>>;

/**
 * What the page and the API show.
 *
 * @param after where the list of duplicate subscriptions continues
 */
export async function readFigures(
  { users, auth, billing, webhooks }: AdminServices,
  trends: Trends,
  after?: string,
) {
  const [allUsers, sessions, paymentEvents, duplicates, endpoints] = await Promise.all([
    users.directory.estimate(),
    auth.sessions.estimate(),
    billing.paymentEvents.estimate(),
    readDuplicates(billing.duplicates, after),
    webhooks?.service.countProblems(),
  ]);
  const found = { count: duplicates.items.length, isPart: duplicates.next !== null };
  return {
    counts: { users: allUsers, sessions, paymentEvents },
    trends,
    duplicates,
    attention: attentionTo(trends, found, endpoints),
  };
}

function toOverview(console: Console, { counts, trends, attention }: Figures): Static<typeof Overview> {
  return {
    counts,
    keyFigures: trends.keyFigures,
    attention: attention.map((problem) => ({
      name: problem.name,
      text: console.textOf(sentenceOf(problem)),
    })),
    countedAt: toTimestamp(trends.at),
    plots: trends.trends.map(({ id, label, unit, definition, days, series, bound }) => ({
      name: id,
      label,
      unit,
      definition,
      days: [...days],
      series: series.map(({ name, values }) => ({ name, values: [...values] })),
      bound: bound ?? null,
    })),
  };
}

function createView(
  console: Console,
  { counts, trends, duplicates, attention }: Figures,
  { period, newest, root }: { period: PeriodName; newest: User[]; root: string },
): View {
  const plots = trends.trends.map(({ id, label, definition, path, markup, wide }) => ({
    id,
    heading: label,
    definition,
    href: path && root + path,
    before: wide?.before.some((value) => value !== null) && 'The dashed line is the time before.',
    markup,
  }));
  const main = plots.find((_, index) => trends.trends[index]?.wide);
  return {
    title: 'Overview',
    periods: periodLinks(period),
    keyFigures: figureViews(trends.keyFigures, root),
    counts: [
      { label: 'Users', value: writeEstimate(counts.users), href: `${root}users` },
      { label: 'Sessions', value: writeEstimate(counts.sessions) },
      { label: 'Payment events', value: writeEstimate(counts.paymentEvents), href: `${root}webhooks` },
    ],
    attention: attention.map((problem) => ({
      text: console.textOf(sentenceOf(problem)),
      href: problem.path.startsWith('#') ? problem.path : root + problem.path,
    })),
    main,
    plots: plots.filter((plot) => plot !== main),
    note: `Days and months in UTC, counted at ${toTimestamp(trends.at).slice(11, 16)} UTC. Counted again after ${REFRESH_SECONDS} seconds, for the next visit.`,
    newest: {
      tableLabel: 'Newest users',
      allHref: `${root}users`,
      all: 'All users',
      empty: 'No users yet. They appear here when they sign up.',
      ...tableOf(NEWEST, newest, root),
    },
    duplicates: { ...duplicates, hasItems: duplicates.items.length > 0 },
  };
}

/** The columns of the newest users. */
const NEWEST: readonly Column<User>[] = [
  userColumn,
  { label: 'Access', text: ({ subscription: { status } }) => status, kind: 'status' },
  planColumn,
  { label: 'Signed up', text: ({ createdAt }) => createdAt, kind: 'time' },
];

/** The next page that is not empty. */
async function readDuplicates({ list }: Duplicates, after: string | undefined) {
  let page = await list(after);
  while (page.items.length === 0 && page.next !== null) page = await list(page.next);
  return {
    next: page.next === null ? null : encodeURIComponent(page.next),
    items: page.items.map(({ email, reportedAt, subscriptions }) => ({
      email,
      reportedAt,
      subscriptions: subscriptions.map(({ startedAt, ...rest }) => ({
        ...rest,
        since: startedAt.slice(0, 10),
      })),
    })),
  };
}

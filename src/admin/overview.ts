import { Type } from 'typebox';
import { type Console, rootOf } from '../console/console.js';
import { toMinute } from '../console/lists.js';
import type { View } from '../http/pages.js';
import { After, type User } from '../http/schemas.js';
import type { Scope } from '../http/scope.js';
import type { Estimate } from '../storage/collection.js';

export interface OverviewSources {
  users: {
    estimate(): Promise<Estimate>;
    listNewest(limit: number): Promise<User[]>;
    /** Counts the registrations of each of the last `days` days, oldest first, each day up to `limit`. */
    countRegistrations(days: number, limit: number): Promise<{ date: string; count: number }[]>;
  };
  sessions: { estimate(): Promise<Estimate> };
  webhookEvents: { estimate(): Promise<Estimate> };
  duplicates: {
    /** Users who pay for more than one subscription; pages may be empty. @throws VALIDATION_ERROR for an invalid `after` */
    list(after: string | undefined): Promise<{ items: DuplicateSubscriptions[]; next: string | null }>;
  };
  settings: { current(): Promise<{ siteName: string }> };
}

interface DuplicateSubscriptions {
  email: string;
  reportedAt: string;
  subscriptions: { id: string; status: string; plan: string; startedAt: string }[];
}

const LISTED_USERS = 10;
const CHART_DAYS = 30;

/** Registrations counted per day, which bounds the index entries that the page reads. */
const MAX_COUNTED_PER_DAY = 10_000;

/** The start page. */
export async function overviewPlugin(
  scope: Scope,
  { console, sources }: { console: Console; sources: OverviewSources },
): Promise<void> {
  // `duplicates`: the page of the users with duplicate subscriptions.
  const querystring = Type.Object({ duplicates: After });

  scope.get('/', { config: console.config, schema: { querystring } }, async (request, reply) => {
    const view = await createOverview(sources, request.query.duplicates);
    return console.send(request, reply, {
      template: 'admin-overview',
      section: '',
      view: { ...view, root: rootOf(request) },
    });
  });
}

/** @param duplicatesAfter where the list of duplicate subscriptions continues */
async function createOverview(sources: OverviewSources, duplicatesAfter?: string): Promise<View> {
  const [users, sessions, events, newest, registrations, settings, duplicates] = await Promise.all([
    sources.users.estimate(),
    sources.sessions.estimate(),
    sources.webhookEvents.estimate(),
    sources.users.listNewest(LISTED_USERS),
    sources.users.countRegistrations(CHART_DAYS, MAX_COUNTED_PER_DAY),
    sources.settings.current(),
    readDuplicates(sources.duplicates, duplicatesAfter),
  ]);
  return {
    title: `${settings.siteName} administration`,
    counts: [
      { label: 'Users', value: writeEstimate(users) },
      { label: 'Sessions', value: writeEstimate(sessions) },
      { label: 'Payment events', value: writeEstimate(events) },
    ],
    plots: await createPlots(registrations),
    users: newest.map((user) => ({ ...user, registered: toMinute(user.createdAt) })),
    duplicates,
  };
}

const writeEstimate = ({ count, isExact }: Estimate) =>
  isExact ? String(count) : `about ${withSeparators(roundEstimate(count))}`;

/** To three digits, because an estimate is not more precise. */
const roundEstimate = (count: number) => Number(count.toPrecision(3));

const withSeparators = (count: number) => count.toLocaleString('en-US');

/** The next page that is not empty. */
async function readDuplicates({ list }: OverviewSources['duplicates'], after: string | undefined) {
  let page = await list(after);
  while (page.items.length === 0 && page.next !== null) page = await list(page.next);
  return {
    next: page.next === null ? null : encodeURIComponent(page.next),
    items: page.items.map(({ email, reportedAt, subscriptions }) => ({
      email,
      reportedAt,
      reported: toMinute(reportedAt),
      subscriptions: subscriptions.map(({ startedAt, ...rest }) => ({
        ...rest,
        since: startedAt.slice(0, 10),
      })),
    })),
  };
}

async function createPlots(registrations: { date: string; count: number }[]) {
  const { renderPlot } = await import('../console/plots.js');
  const signUps = renderPlot({
    label: 'Sign-ups',
    unit: 'users',
    days: registrations.map(({ date }) => date),
    series: [{ name: 'Sign-ups', values: registrations.map(({ count }) => count) }],
    shape: 'stacked',
    isSummable: true,
    bound: MAX_COUNTED_PER_DAY,
  });
  return [{ id: 'sign-ups', heading: `Sign-ups in the last ${CHART_DAYS} days`, ...signUps }];
}

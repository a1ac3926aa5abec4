import { Type } from 'typebox';
import type { Pages, View } from '../http/pages.js';
import { After, type User } from '../http/schemas.js';
import { access, originOf, type Scope } from '../http/scope.js';
import { AppError } from '../kernel/errors.js';
import type { Operator } from '../ops/audit.js';
import type { Estimate } from '../storage/collection.js';
import { type FormTokens, registerForms } from './forms.js';
import { SettingsForm } from './schemas.js';

export interface AdminPluginOptions {
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
  settings: {
    current(): Promise<Settings>;
    /** @throws VERSION_CONFLICT */
    update(settings: Settings, by: Operator): Promise<unknown>;
  };
  /** The user name of the operator, for the audit. */
  operator: string;
  formTokens: FormTokens;
  pages: Pages;
}

interface DuplicateSubscriptions {
  email: string;
  reportedAt: string;
  subscriptions: { id: string; status: string; plan: string; startedAt: string }[];
}

interface Settings {
  siteName: string;
  allowRegistration: boolean;
  maintenanceMode: boolean;
  emailNotifications: boolean;
  version: number;
}

const LISTED_USERS = 10;
const CHART_DAYS = 30;

/** Registrations counted per day, which bounds the index entries that the page reads. */
const MAX_COUNTED_PER_DAY = 10_000;

/** The pages of the admin area. */
export async function adminPlugin(scope: Scope, deps: AdminPluginOptions): Promise<void> {
  const Query = Type.Object({
    saved: Type.Optional(Type.String()),
    // The page of the users with duplicate subscriptions.
    duplicates: After,
  });

  scope.get('/', { config: access('admin'), schema: { querystring: Query } }, async (request, reply) => {
    // Relative to the page, because a host may mount it anywhere, with and without a trailing slash.
    const [path = ''] = request.url.split('?');
    const action = path.endsWith('/') ? 'settings' : `${path.slice(path.lastIndexOf('/') + 1)}/settings`;
    const { saved, duplicates: after } = request.query;
    const view = await createOverview(deps, { action, saved: saved !== undefined }, after);
    return deps.pages.send(reply, 'admin-overview', view);
  });

  await registerForms(scope, deps.formTokens, (forms) => {
    forms.post(
      '/settings',
      { config: access('admin'), schema: { body: SettingsForm } },
      async (request, reply) => {
        const { body } = request;
        const by = { name: deps.operator, ip: originOf(request).ip };
        try {
          const settings = {
            siteName: body.siteName,
            allowRegistration: body.allowRegistration !== undefined,
            maintenanceMode: body.maintenanceMode !== undefined,
            emailNotifications: body.emailNotifications !== undefined,
            version: Number(body.version),
          };
          await deps.settings.update(settings, by);
        } catch (error) {
          if (!(error instanceof AppError && error.code === 'VERSION_CONFLICT')) throw error;
          // Shows the settings as stored by the concurrent change, so that the next attempt builds on them.
          const view = await createOverview(deps, { action: 'settings', failure: error.message });
          return deps.pages.send(reply.code(error.statusCode), 'admin-overview', view);
        }
        return reply.redirect('./?saved#settings', 303);
      },
    );
  });
}

/**
 * @param form the target of the settings form, and the result of its last submission
 * @param duplicatesAfter where the list of duplicate subscriptions continues
 */
async function createOverview(
  deps: AdminPluginOptions,
  form: { action: string; saved?: boolean; failure?: string },
  duplicatesAfter?: string,
): Promise<View> {
  const [users, sessions, events, newest, registrations, settings, duplicates] = await Promise.all([
    deps.users.estimate(),
    deps.sessions.estimate(),
    deps.webhookEvents.estimate(),
    deps.users.listNewest(LISTED_USERS),
    deps.users.countRegistrations(CHART_DAYS, MAX_COUNTED_PER_DAY),
    deps.settings.current(),
    readDuplicates(deps.duplicates, duplicatesAfter),
  ]);
  return {
    title: `${settings.siteName} administration`,
    siteName: settings.siteName,
    counts: [
      { label: 'Users', value: writeEstimate(users) },
      { label: 'Sessions', value: writeEstimate(sessions) },
      { label: 'Payment events', value: writeEstimate(events) },
    ],
    ...createChart(registrations),
    users: newest.map((user) => ({ ...user, registered: toMinute(user.createdAt) })),
    duplicates,
    settings: { ...settings, ...form, token: deps.formTokens.issue() },
    switches: Object.entries(SWITCH_LABELS).map(([name, label]) => ({
      name,
      label,
      isOn: settings[name as keyof typeof SWITCH_LABELS],
    })),
  };
}

const writeEstimate = ({ count, isExact }: Estimate) =>
  isExact ? String(count) : `about ${withSeparators(roundEstimate(count))}`;

/** To three digits, because an estimate is not more precise. */
const roundEstimate = (count: number) => Number(count.toPrecision(3));

const withSeparators = (count: number) => count.toLocaleString('en-US');

const toMinute = (timestamp: string) => timestamp.slice(0, 16).replace('T', ' ');

/** The next page that is not empty. */
async function readDuplicates({ list }: AdminPluginOptions['duplicates'], after: string | undefined) {
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

const SWITCH_LABELS = {
  allowRegistration: 'Allow new registrations',
  maintenanceMode: 'Maintenance mode: users cannot sign in or call the API',
  emailNotifications: 'Send notification e-mails (security e-mails are always sent)',
};

const writeBounded = (count: number) =>
  count >= MAX_COUNTED_PER_DAY ? `${withSeparators(MAX_COUNTED_PER_DAY)}+` : String(count);

/** Bars in a view box of 300 × 100, and a summary for screen readers. */
function createChart(days: { date: string; count: number }[]) {
  const most = Math.max(1, ...days.map((day) => day.count));
  const total = days.reduce((sum, day) => sum + day.count, 0);
  const bars = days.map(({ date, count }, index) => {
    const height = Math.round((count / most) * 96);
    return { date, count: writeBounded(count), x: (index * 300) / days.length + 1, y: 99 - height, height };
  });
  const isBounded = most >= MAX_COUNTED_PER_DAY;
  const inTotal = isBounded ? `${withSeparators(total)}+` : total;
  const plotSummary = `${inTotal} in total; peak ${total === 0 ? 0 : writeBounded(most)} per day`;
  return { days: bars, plotSummary, firstDay: days[0]?.date, lastDay: days.at(-1)?.date };
}

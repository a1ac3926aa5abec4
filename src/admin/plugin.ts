import { access, type Scope } from '../kernel/http.js';
import { renderPage, sendPage } from '../kernel/pages.js';
import type { User } from '../kernel/schemas.js';

export interface AdminPluginOptions {
  users: {
    count(): Promise<number>;
    newest(limit: number): Promise<User[]>;
    /** Registrations of each of the last `days` days, the oldest first. */
    registrations(days: number): Promise<{ date: string; count: number }[]>;
  };
  sessions: { count(): Promise<number> };
  webhookEvents: { count(): Promise<number> };
  settings: {
    current(): Promise<{ siteName: string; version: number } & Record<string, string | number | boolean>>;
  };
}

const NEWEST = 10;
const DAYS = 30;

/** The pages of the admin area. */
export async function adminPlugin(scope: Scope, deps: AdminPluginOptions): Promise<void> {
  scope.get('/', { config: access('admin') }, async (_request, reply) => {
    const [users, sessions, events, newest, registrations, settings] = await Promise.all([
      deps.users.count(),
      deps.sessions.count(),
      deps.webhookEvents.count(),
      deps.users.newest(NEWEST),
      deps.users.registrations(DAYS),
      deps.settings.current(),
    ]);
    const { version, ...shown } = settings;
    const page = renderPage('admin-overview', {
      title: `${settings.siteName} administration`,
      siteName: settings.siteName,
      counts: [
        { label: 'Users', value: users },
        { label: 'Sessions', value: sessions },
        { label: 'Payment events', value: events },
      ],
      ...plot(registrations),
      users: newest.map((user) => ({ ...user, registered: user.createdAt.slice(0, 16).replace('T', ' ') })),
      settings: Object.entries(SETTING_LABELS).map(([name, label]) => ({
        label,
        value: humanly(shown[name]),
      })),
      settingsVersion: version,
    });
    return sendPage(reply, page);
  });
}

const SETTING_LABELS = {
  siteName: 'Site name',
  allowRegistration: 'New accounts',
  maintenanceMode: 'Maintenance',
  emailNotifications: 'E-mail notifications',
};

function humanly(value: string | number | boolean | undefined): string {
  return typeof value === 'boolean' ? (value ? 'on' : 'off') : String(value);
}

/** Bars in a field of 300 × 100, and the same in words for those who cannot see them. */
function plot(days: { date: string; count: number }[]) {
  const most = Math.max(1, ...days.map((day) => day.count));
  const total = days.reduce((sum, day) => sum + day.count, 0);
  const bars = days.map(({ date, count }, index) => {
    const height = Math.round((count / most) * 96);
    return { date, count, x: (index * 300) / days.length + 1, y: 99 - height, height };
  });
  const plotSummary = `${total} in all, at most ${total === 0 ? 0 : most} on one day.`;
  return { days: bars, plotSummary, firstDay: days[0]?.date, lastDay: days.at(-1)?.date };
}

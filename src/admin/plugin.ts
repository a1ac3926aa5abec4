import type { Console } from '../console/console.js';
import type { Scope } from '../http/scope.js';
import { type BillingSource, billingPagesPlugin } from './billing.js';
import type { CustomSettingsSource } from './custom-settings.js';
import { type OverviewSources, overviewPlugin } from './overview.js';
import { type SettingsSource, settingsPagePlugin } from './settings.js';
import { type UserPageSource, userPagePlugin } from './user-page.js';
import type { UserSectionSources } from './user-sections.js';
import { createResolveUser, type UsersSource, usersPlugin } from './users.js';
import { type EventsSource, webhooksPlugin } from './webhooks.js';

export interface AdminPluginOptions {
  console: Console;
  overview: OverviewSources;
  users: UsersSource & UserPageSource;
  userSections: Omit<UserSectionSources, 'billing'>;
  billing: BillingSource;
  webhooks: EventsSource;
  settings: SettingsSource;
  customSettings: CustomSettingsSource | undefined;
}

/** The navigation of the admin area, in this order. */
export const SECTIONS = [
  { path: '', label: 'Overview' },
  { path: 'users', label: 'Users' },
  { path: 'subscriptions', label: 'Subscriptions' },
  { path: 'payments', label: 'Payments' },
  { path: 'webhooks', label: 'Payment events' },
  { path: 'settings', label: 'Settings' },
] as const;

/** The pages of the admin area. */
export async function adminPlugin(scope: Scope, deps: AdminPluginOptions): Promise<void> {
  const { console } = deps;
  const resolveUser = createResolveUser(deps.users);
  await scope.register(overviewPlugin, { console, sources: deps.overview });
  await scope.register(usersPlugin, { console, users: deps.users });
  const sources = { ...deps.userSections, billing: deps.billing };
  await scope.register(userPagePlugin, { console, users: deps.users, sources });
  await scope.register(billingPagesPlugin, { console, billing: deps.billing, resolveUser });
  await scope.register(webhooksPlugin, { console, events: deps.webhooks, resolveUser });
  await scope.register(settingsPagePlugin, {
    console,
    settings: deps.settings,
    custom: deps.customSettings,
  });
}

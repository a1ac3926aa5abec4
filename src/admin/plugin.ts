import type { Console } from '../console/console.js';
import type { Scope } from '../http/scope.js';
import { type OverviewSources, overviewPlugin } from './overview.js';
import { type SettingsSource, settingsPagePlugin } from './settings.js';
import { type UsersSource, usersPlugin } from './users.js';

export interface AdminPluginOptions {
  console: Console;
  overview: OverviewSources;
  users: UsersSource;
  settings: SettingsSource;
}

/** The navigation of the admin area, in this order. */
export const SECTIONS = [
  { path: '', label: 'Overview' },
  { path: 'users', label: 'Users' },
  { path: 'settings', label: 'Settings' },
] as const;

/** The pages of the admin area. */
export async function adminPlugin(scope: Scope, deps: AdminPluginOptions): Promise<void> {
  const { console } = deps;
  await scope.register(overviewPlugin, { console, sources: deps.overview });
  await scope.register(usersPlugin, { console, users: deps.users });
  await scope.register(settingsPagePlugin, { console, settings: deps.settings });
}

import { Envelope, ok } from '../http/schemas.js';
import { access, originOf, prependHook, routeRules, type Scope } from '../http/scope.js';
import { settingsErrors } from './errors.js';
import { GlobalSettings, PublicSettings, SettingsPatch, VersionedSettings } from './schemas.js';
import type { SettingsService } from './service.js';

export interface SettingsPluginOptions {
  settings: SettingsService;
}

/** Reading, for users and for everybody. */
export async function settingsPlugin(scope: Scope, { settings }: SettingsPluginOptions): Promise<void> {
  scope.get(
    '/global-settings',
    {
      config: access('user', { duringMaintenance: true }),
      schema: { response: { 200: Envelope(GlobalSettings) } },
    },
    async () => ok(await settings.current()),
  );

  scope.get(
    '/settings/public',
    {
      config: access('public', { duringMaintenance: true }),
      schema: { response: { 200: Envelope(PublicSettings) } },
    },
    async () => ok(await settings.current()),
  );
}

/** Reading and writing, for the admin area. */
export async function settingsAdminPlugin(
  scope: Scope,
  { settings, operator }: SettingsPluginOptions & { operator: string },
): Promise<void> {
  scope.get(
    '/api/settings',
    { config: access('admin'), schema: { response: { 200: Envelope(VersionedSettings) } } },
    async () => ok(await settings.current()),
  );

  scope.patch(
    '/api/settings',
    {
      config: access('admin'),
      schema: { body: SettingsPatch, response: { 200: Envelope(VersionedSettings) } },
    },
    async (request) => ok(await settings.update(request.body, { name: operator, ip: originOf(request).ip })),
  );
}

/**
 * Keeps users out while the operator says so, except from the routes that work during maintenance. To be called
 * before the routes are added.
 */
export function enforceMaintenance(scope: Scope, settings: SettingsService): void {
  scope.addHook('onRoute', (route) => {
    if (routeRules(route).duringMaintenance) return;
    prependHook(route, (_request, _reply, done) => {
      const judge = ({ maintenanceMode }: VersionedSettings) =>
        done(maintenanceMode ? settingsErrors.MAINTENANCE() : undefined);
      // Without a promise where it can be: every request passes here.
      const known = settings.known();
      if (known) judge(known);
      else settings.current().then(judge, done);
    });
  });
}

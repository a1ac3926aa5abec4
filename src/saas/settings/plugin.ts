import { Envelope, ok } from '../../core/http/schemas.js';
import { access, originOf, prependHook, routeRules, type Scope } from '../../core/http/scope.js';
import type { CustomSettingsService } from './custom.js';
import { settingsErrors } from './errors.js';
import {
  CustomSettingsAnswer,
  CustomSettingsPatch,
  GlobalSettings,
  PublicSettings,
  PublicSettingsWithCustom,
  SettingsPatch,
  VersionedSettings,
} from './schemas.js';
import type { SettingsService } from './service.js';

export interface SettingsPluginOptions {
  settings: SettingsService;
  /** Absent if the host declares no settings. */
  custom: CustomSettingsService | undefined;
}

/** Routes that read the settings: all of them for users, a part for the public. */
export async function settingsPlugin(
  scope: Scope,
  { settings, custom }: SettingsPluginOptions,
): Promise<void> {
  scope.get(
    '/global-settings',
    {
      config: access('user', { duringMaintenance: true }),
      schema: { response: { 200: Envelope(GlobalSettings) } },
    },
    async () => ok(await settings.current()),
  );

  const config = access('public', { duringMaintenance: true });
  if (custom?.fields.some(({ isPublic }) => isPublic)) {
    scope.get(
      '/settings/public',
      { config, schema: { response: { 200: Envelope(PublicSettingsWithCustom) } } },
      async () => ok({ ...(await settings.current()), custom: await custom.publicValues() }),
    );
  } else {
    scope.get(
      '/settings/public',
      { config, schema: { response: { 200: Envelope(PublicSettings) } } },
      async () => ok(await settings.current()),
    );
  }
}

/** Routes that read and change the settings in the admin area. */
export async function settingsAdminPlugin(
  scope: Scope,
  { settings, custom, operator }: SettingsPluginOptions & { operator: string },
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

  if (!custom) return;
  const response = { 200: Envelope(CustomSettingsAnswer) };
  scope.get('/api/settings/custom', { config: access('admin'), schema: { response } }, async () =>
    ok(await custom.describe()),
  );

  scope.patch(
    '/api/settings/custom',
    { config: access('admin'), schema: { body: CustomSettingsPatch, response } },
    async (request) => ok(await custom.update(request.body, { name: operator, ip: originOf(request).ip })),
  );
}

/**
 * Rejects requests in maintenance mode, except to routes with `duringMaintenance`. Must be called before the routes are
 * added.
 */
export function enforceMaintenance(scope: Scope, settings: SettingsService): void {
  scope.addHook('onRoute', (route) => {
    if (routeRules(route).duringMaintenance) return;
    prependHook(route, (_request, _reply, done) => {
      const decide = ({ maintenanceMode }: VersionedSettings) =>
        done(maintenanceMode ? settingsErrors.MAINTENANCE() : undefined);
      // Synchronous when cached, because this hook runs for every request.
      const cached = settings.cached();
      if (cached) decide(cached);
      else settings.current().then(decide, done);
    });
  });
}

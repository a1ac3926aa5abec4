import { access, type FastifyTypebox, prependHook, routeRules } from '../../core/http/routes.js';
import { Envelope, ok } from '../../core/http/schemas.js';
import { operatorIn } from '../../shared/console-kit/roles.js';
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
  fastify: FastifyTypebox,
  { settings, custom }: SettingsPluginOptions,
): Promise<void> {
  fastify.get(
    '/global-settings',
    {
      config: access('user', { duringMaintenance: true }),
      schema: { response: { 200: Envelope(GlobalSettings) } },
    },
    async () => ok(await settings.current()),
  );

  const shown = custom?.fields.some(({ isPublic }) => isPublic) ? custom : undefined;
  fastify.get(
    '/settings/public',
    {
      config: access('public', { duringMaintenance: true }),
      schema: { response: { 200: Envelope(shown ? PublicSettingsWithCustom : PublicSettings) } },
    },
    async () => ok({ ...(await settings.current()), custom: (await shown?.publicValues()) ?? {} }),
  );
}

/** Routes that read and change the settings in the admin area. */
export async function settingsAdminPlugin(
  fastify: FastifyTypebox,
  { settings, custom, operator }: SettingsPluginOptions & { operator: string },
): Promise<void> {
  fastify.get(
    '/api/settings',
    { config: access('admin'), schema: { response: { 200: Envelope(VersionedSettings) } } },
    async () => ok(await settings.current()),
  );

  fastify.patch(
    '/api/settings',
    {
      config: access('admin'),
      schema: { body: SettingsPatch, response: { 200: Envelope(VersionedSettings) } },
    },
    async (request) => ok(await settings.update(request.body, operatorIn(request, operator))),
  );

  if (!custom) return;
  const response = { 200: Envelope(CustomSettingsAnswer) };
  fastify.get('/api/settings/custom', { config: access('admin'), schema: { response } }, async () =>
    ok(await custom.describe()),
  );

  fastify.patch(
    '/api/settings/custom',
    { config: access('admin'), schema: { body: CustomSettingsPatch, response } },
    async (request) => ok(await custom.update(request.body, operatorIn(request, operator))),
  );
}

/**
 * Rejects requests in maintenance mode, except to routes with `duringMaintenance`. Must be called before the routes are
 * added.
 */
export function enforceMaintenance(fastify: FastifyTypebox, settings: SettingsService): void {
  fastify.addHook('onRoute', (route) => {
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

import type { FastifyTypebox } from '../../core/http/routes.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { CustomSettingsContext, CustomSettingsService } from './custom.js';
import type { CustomSettings } from './definitions.js';
import { enforceMaintenance, settingsAdminPlugin, settingsPlugin } from './plugin.js';
import { createSettingsService } from './service.js';

/** Settings of the whole installation, which the operator changes at runtime. */
export type SettingsModule = ReturnType<typeof createSettingsModule>;

/**
 * @param operator the user name of the operator, for the audit
 * @param custom the settings of the host, if it declares any
 * @param registrationBy how people register at all; absent: in every way
 */
export function createSettingsModule(
  context: ModuleContext,
  { operator, custom }: { operator: string; custom?: CustomSettingsService | undefined },
  registrationBy?: string,
) {
  const service = createSettingsService(context);
  return {
    service,
    /** The settings of the host, if it declares any. */
    custom,
    siteName: async (): Promise<string> => (await service.current()).siteName,
    /** Whether people may register, in this way. */
    registrationAllowed: async (method?: string): Promise<boolean> =>
      (registrationBy ?? method) === method && (await service.current()).allowRegistration,
    /** Rejects requests with 503 in maintenance mode. Must be called before routes are added to `fastify`. */
    enforceMaintenance: (fastify: FastifyTypebox) => enforceMaintenance(fastify, service),
    /** The routes of the API. */
    plugin: (fastify: FastifyTypebox) => settingsPlugin(fastify, { settings: service, custom }),
    /** The routes of the admin area. */
    adminPlugin: (fastify: FastifyTypebox) =>
      settingsAdminPlugin(fastify, { settings: service, custom, operator }),
  };
}

/**
 * The settings that the host declares. Loaded only if there are any.
 *
 * @param keys the encryption keys, the current one first
 */
export async function openCustomSettings(
  context: CustomSettingsContext,
  { definitions, keys: configured }: { definitions: CustomSettings; keys: readonly (string | undefined)[] },
): Promise<CustomSettingsService> {
  const { createCustomSettings } = await import('./custom.js');
  const keys = configured.filter((key) => key !== undefined);
  const custom = createCustomSettings(context, { definitions, keys });
  if (keys.length > 0) context.jobs.add('settings-encryption', custom.encryptionJob);
  return custom;
}

import type { FastifyTypebox } from '../../core/http/routes.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { CustomSettingsService } from './custom.js';
import type { CustomSettings } from './definitions.js';
import { enforceMaintenance, settingsAdminPlugin, settingsPlugin } from './plugin.js';
import { createSettingsService, type SettingsService } from './service.js';

/** Settings of the whole installation, which the operator changes at runtime. */
export interface SettingsModule {
  service: SettingsService;
  /** The settings of the host, if it declares any. */
  custom: CustomSettingsService | undefined;
  siteName(): Promise<string>;
  /** Whether people may register. */
  registrationAllowed(): Promise<boolean>;
  /** Rejects requests with 503 in maintenance mode. Must be called before routes are added to `fastify`. */
  enforceMaintenance(fastify: FastifyTypebox): void;
  /** The routes of the API. */
  plugin(fastify: FastifyTypebox): Promise<void>;
  /** The routes of the admin area. */
  adminPlugin(fastify: FastifyTypebox): Promise<void>;
}

/**
 * @param operator the user name of the operator, for the audit
 * @param custom the settings of the host, if it declares any
 */
export function createSettingsModule(
  { store, audit, clock }: Pick<ModuleContext, 'store' | 'audit' | 'clock'>,
  { operator, custom }: { operator: string; custom?: CustomSettingsService | undefined },
): SettingsModule {
  const service = createSettingsService({ store, audit, clock });
  return {
    service,
    custom,
    siteName: async () => (await service.current()).siteName,
    registrationAllowed: async () => (await service.current()).allowRegistration,
    enforceMaintenance: (fastify) => enforceMaintenance(fastify, service),
    plugin: (fastify) => settingsPlugin(fastify, { settings: service, custom }),
    adminPlugin: (fastify) => settingsAdminPlugin(fastify, { settings: service, custom, operator }),
  };
}

/**
 * The settings that the host declares. Loaded only if there are any.
 *
 * @param keys the encryption keys, the current one first
 */
export async function openCustomSettings(
  context: Pick<ModuleContext, 'store' | 'audit' | 'clock' | 'random' | 'jobs'>,
  { definitions, keys }: { definitions: CustomSettings; keys: readonly (string | undefined)[] },
): Promise<CustomSettingsService> {
  const { createCustomSettings } = await import('./custom.js');
  const encryptionKeys = keys.filter((key) => key !== undefined);
  const custom = createCustomSettings({ ...context, definitions, encryptionKeys });
  if (encryptionKeys.length > 0) context.jobs.add('settings-encryption', custom.encryptionJob);
  return custom;
}

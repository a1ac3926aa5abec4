import type { Scope } from '../../core/http/scope.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { CustomSettingsService } from './custom.js';
import type { CustomSettings } from './definitions.js';
import { enforceMaintenance, settingsAdminPlugin, settingsPlugin } from './plugin.js';
import { createSettingsService, type SettingsService } from './service.js';

/** Settings of the whole installation, which the operator changes at runtime. */
export interface SettingsModule {
  service: SettingsService;
  /** Rejects requests with 503 in maintenance mode. Must be called before routes are added to `scope`. */
  enforceMaintenance(scope: Scope): void;
  /** The routes of the API. */
  plugin(scope: Scope): Promise<void>;
  /** The routes of the admin area. */
  adminPlugin(scope: Scope): Promise<void>;
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
    enforceMaintenance: (scope) => enforceMaintenance(scope, service),
    plugin: (scope) => settingsPlugin(scope, { settings: service, custom }),
    adminPlugin: (scope) => settingsAdminPlugin(scope, { settings: service, custom, operator }),
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

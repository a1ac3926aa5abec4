import type { Scope } from '../http/scope.js';
import type { ModuleContext } from '../server/module-context.js';
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

/** @param operator the user name of the operator, for the audit */
export function createSettingsModule(
  { store, audit, clock }: Pick<ModuleContext, 'store' | 'audit' | 'clock'>,
  { operator }: { operator: string },
): SettingsModule {
  const service = createSettingsService({ store, audit, clock });
  return {
    service,
    enforceMaintenance: (scope) => enforceMaintenance(scope, service),
    plugin: (scope) => settingsPlugin(scope, { settings: service }),
    adminPlugin: (scope) => settingsAdminPlugin(scope, { settings: service, operator }),
  };
}

import type { Scope } from '../http/scope.js';
import type { ModuleContext } from '../server/module-context.js';
import { enforceMaintenance, settingsAdminPlugin, settingsPlugin } from './plugin.js';
import { createSettings, type SettingsService } from './service.js';

/** The settings of the whole installation, which the operator changes while it runs. */
export interface SettingsModule {
  settings: SettingsService;
  /** Answers with 503 while the operator has switched maintenance on. Called before any route is added to `scope`. */
  enforceMaintenance(scope: Scope): void;
  /** The routes for users and for everybody. */
  plugin(scope: Scope): Promise<void>;
  /** The routes of the admin area. */
  adminPlugin(scope: Scope): Promise<void>;
}

/** @param operator the name of the operator in the audit */
export function createSettingsModule(
  { store, audit, clock }: Pick<ModuleContext, 'store' | 'audit' | 'clock'>,
  { operator }: { operator: string },
): SettingsModule {
  const settings = createSettings({ store, audit, clock });
  return {
    settings,
    enforceMaintenance: (scope) => enforceMaintenance(scope, settings),
    plugin: (scope) => settingsPlugin(scope, { settings }),
    adminPlugin: (scope) => settingsAdminPlugin(scope, { settings, operator }),
  };
}

import type { Collection, Store } from '../storage/collection.js';
import type { VersionedSettings } from './schemas.js';

/** The settings until the operator changes them. */
export const DEFAULTS: VersionedSettings = {
  siteName: 'SaaS',
  allowRegistration: true,
  maintenanceMode: false,
  emailNotifications: true,
  version: 0,
};

/** The only document of the collection; absent until the first change. */
export interface SettingsDocument extends VersionedSettings {
  id: 'global';
}

export function settingsCollection(store: Store): Collection<SettingsDocument> {
  return store.collection<SettingsDocument>('settings', { fields: ['version'] });
}

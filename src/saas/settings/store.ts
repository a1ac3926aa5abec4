import type { Collection, Store } from '../../core/storage/collection.js';
import type { VersionedSettings } from './schemas.js';

/** The settings until the operator changes them. */
export const DEFAULTS: VersionedSettings = {
  siteName: 'SaaS',
  allowRegistration: true,
  maintenanceMode: false,
  emailNotifications: true,
  version: 0,
};

/** Absent until the first change. */
export interface SettingsDocument extends VersionedSettings {
  id: 'global';
}

/** The values of the host's settings that the operator has set; absent until the first change. */
export interface CustomSettingsDocument {
  id: 'custom';
  version: number;
  values: Record<string, CustomValue>;
  /** Encrypted. */
  secrets: Record<string, string>;
}

export type CustomValue = string | number | boolean;

const COLLECTION = 'settings';

export function settingsCollection(store: Store): Collection<SettingsDocument> {
  return store.collection<SettingsDocument>(COLLECTION, { numbers: ['version'] });
}

export function customSettingsCollection(store: Store): Collection<CustomSettingsDocument> {
  return store.collection<CustomSettingsDocument>(COLLECTION, { numbers: ['version'] });
}

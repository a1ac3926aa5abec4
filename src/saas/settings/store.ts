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

/** Both documents are in one collection. */
export const settingsCollection = <T extends { id: string; version: number } = SettingsDocument>(
  store: Store,
): Collection<T> => store.collection<T>('settings', { numbers: ['version'] as never });

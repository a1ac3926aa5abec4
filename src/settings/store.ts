import type { Collection, Store } from '../storage/collection.js';
import type { VersionedSettings } from './schemas.js';

/** The one document of this domain. */
export interface SettingsDocument extends VersionedSettings {
  id: 'global';
}

export function settingsCollection(store: Store): Collection<SettingsDocument> {
  return store.collection<SettingsDocument>('settings', { fields: ['version'] });
}

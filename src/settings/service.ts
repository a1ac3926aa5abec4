import type { Clock } from '../kernel/clock.js';
import { httpErrors } from '../kernel/errors.js';
import type { Audit, Operator } from '../ops/audit.js';
import { nullIfTaken, type Store } from '../storage/collection.js';
import type { SettingsPatch, VersionedSettings } from './schemas.js';
import { DEFAULTS, settingsCollection } from './store.js';

/** Settings of the whole installation. */
export interface SettingsService {
  /** Returns the settings as read at most one second ago, so that every process applies a change within two. */
  current(): Promise<VersionedSettings>;
  /** Returns the same settings, or `undefined` when they must be read from the store. */
  cached(): VersionedSettings | undefined;
  /** Returns the settings as last read, without a delay; the defaults before the first read. */
  latest(): VersionedSettings;
  /** Changes the given settings if the stored version is the one in `patch`. @throws VERSION_CONFLICT */
  update(patch: SettingsPatch, by: Operator): Promise<VersionedSettings>;
}

const versionConflict = () =>
  httpErrors.VERSION_CONFLICT({
    message: 'The settings were changed in the meantime. Reload them and repeat the change.',
  });

const MAX_AGE_MS = 1_000;

export interface SettingsDependencies {
  store: Store;
  audit: Audit;
  clock: Clock;
}

export function createSettingsService({ store, audit, clock }: SettingsDependencies): SettingsService {
  const documents = settingsCollection(store);
  let latest: { settings: VersionedSettings; at: number } | undefined;

  const updateCache = ({
    siteName,
    allowRegistration,
    maintenanceMode,
    emailNotifications,
    version,
  }: VersionedSettings) => {
    const settings = { siteName, allowRegistration, maintenanceMode, emailNotifications, version };
    latest = { settings, at: clock.now() };
    return settings;
  };
  const readStored = async (): Promise<VersionedSettings> =>
    (await documents.findOne({ id: 'global' })) ?? DEFAULTS;
  const cached = () =>
    latest && Math.abs(clock.now() - latest.at) < MAX_AGE_MS ? latest.settings : undefined;

  return {
    cached,
    latest: () => latest?.settings ?? DEFAULTS,

    async current() {
      return cached() ?? updateCache(await readStored());
    },

    async update({ version, ...changes }, { name, ip }) {
      const before = await readStored();
      if (before.version !== version) throw versionConflict();
      // Version 0 denotes the defaults, which are not stored yet.
      const first = { id: 'global', ...DEFAULTS, ...changes, version: 1 } as const;
      const updated =
        version === 0
          ? await documents.insert(first).then(() => first, nullIfTaken)
          : await documents.updateOne({ id: 'global', version }, { set: changes, inc: { version: 1 } });
      if (!updated) throw versionConflict();
      // Before the next `await`, so that this change cannot overwrite a later one in the cache.
      updateCache(updated);
      const changed = Object.entries(changes).filter(
        ([setting, value]) => before[setting as keyof typeof changes] !== value,
      );
      if (changed.length > 0) {
        const detail = JSON.stringify(Object.fromEntries(changed));
        await audit.record({ event: 'settings.changed', subject: name, ip, detail });
      }
      return updated;
    },
  };
}

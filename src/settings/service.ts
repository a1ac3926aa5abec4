import type { Clock } from '../kernel/clock.js';
import type { Audit } from '../ops/audit.js';
import { nullIfTaken, type Store } from '../storage/collection.js';
import { settingsErrors } from './errors.js';
import type { SettingsPatch, VersionedSettings } from './schemas.js';
import { DEFAULTS, settingsCollection } from './store.js';

/** Who changes settings, and from where. */
export interface Operator {
  name: string;
  ip: string;
}

/** The settings of the whole installation. */
export interface SettingsService {
  /** At most one second old, so that a change holds in every process within two. */
  current(): Promise<VersionedSettings>;
  /** The same where it needs no look into the store. */
  known(): VersionedSettings | undefined;
  /** Writes the named settings over the version that `patch` has read. @throws VERSION_CONFLICT */
  update(patch: SettingsPatch, by: Operator): Promise<VersionedSettings>;
}

const MAX_AGE_MS = 1_000;

export interface SettingsDependencies {
  store: Store;
  audit: Audit;
  clock: Clock;
}

export function createSettings({ store, audit, clock }: SettingsDependencies): SettingsService {
  const documents = settingsCollection(store);
  let latest: { settings: VersionedSettings; at: number } | undefined;

  const remember = ({
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
  const stored = async (): Promise<VersionedSettings> =>
    (await documents.findOne({ id: 'global' })) ?? DEFAULTS;
  const known = () =>
    latest && Math.abs(clock.now() - latest.at) < MAX_AGE_MS ? latest.settings : undefined;

  return {
    known,

    async current() {
      return known() ?? remember(await stored());
    },

    async update({ version, ...changes }, { name, ip }) {
      const before = await stored();
      if (before.version !== version) throw settingsErrors.VERSION_CONFLICT();
      // Version 0 is the defaults, which nobody has stored yet.
      const first = { id: 'global', ...DEFAULTS, ...changes, version: 1 } as const;
      const updated =
        version === 0
          ? await documents.insert(first).then(() => first, nullIfTaken)
          : await documents.updateOne({ id: 'global', version }, { set: changes, inc: { version: 1 } });
      if (!updated) throw settingsErrors.VERSION_CONFLICT();
      // Before anything is waited for, or a later change could be forgotten for this one.
      remember(updated);
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

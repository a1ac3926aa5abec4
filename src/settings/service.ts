import type { Clock } from '../kernel/clock.js';
import { defineErrors } from '../kernel/errors.js';
import { nullIfTaken, type Store } from '../storage/collection.js';
import type { SettingsPatch, VersionedSettings } from './schemas.js';
import { settingsCollection } from './store.js';

export const settingsErrors = defineErrors({
  VERSION_CONFLICT: [
    409,
    'Somebody changed the settings in the meantime. Read them again and repeat the change.',
  ],
  MAINTENANCE: [503, 'The service is under maintenance. Try again later.'],
});

/** The settings of the whole installation. */
export interface SettingsService {
  /** At most one second old, so that a change holds in every process within two. */
  current(): Promise<VersionedSettings>;
  /** The same where it needs no look into the store. */
  known(): VersionedSettings | undefined;
  /** Writes the named settings over the version that `patch` has read. @throws VERSION_CONFLICT */
  update(patch: SettingsPatch): Promise<VersionedSettings>;
}

const DEFAULTS: VersionedSettings = {
  siteName: 'SaaS',
  allowRegistration: true,
  maintenanceMode: false,
  emailNotifications: true,
  version: 0,
};

const MAX_AGE = 1_000;

export function createSettings({ store, clock }: { store: Store; clock: Clock }): SettingsService {
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
  const known = () => (latest && Math.abs(clock.now() - latest.at) < MAX_AGE ? latest.settings : undefined);

  return {
    known,

    async current() {
      return known() ?? remember((await documents.findOne({ id: 'global' })) ?? DEFAULTS);
    },

    async update({ version, ...changes }) {
      // Version 0 is the defaults, which nobody has stored yet.
      const first = { id: 'global', ...DEFAULTS, ...changes, version: 1 } as const;
      const updated =
        version === 0
          ? await documents.insert(first).then(() => first, nullIfTaken)
          : await documents.updateOne({ id: 'global', version }, { set: changes, inc: { version: 1 } });
      if (!updated) throw settingsErrors.VERSION_CONFLICT();
      return remember(updated);
    },
  };
}

import type { Clock } from '../../core/kernel/clock.js';
import { type Audit, changeDetail, madeBy, type Operator } from '../../core/ops/audit.js';
import type { Store } from '../../core/storage/collection.js';
import type { SettingsPatch, VersionedSettings } from './schemas.js';
import { DEFAULTS, settingsCollection } from './store.js';
import { createVersionedDocument } from './versioned.js';

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

export interface SettingsDependencies {
  store: Store;
  audit: Audit;
  clock: Clock;
}

export function createSettingsService({ store, audit, clock }: SettingsDependencies): SettingsService {
  const document = createVersionedDocument(settingsCollection(store), { id: 'global', ...DEFAULTS }, clock);

  return {
    cached: document.cached,
    latest: document.latest,
    current: document.current,

    async update({ version, ...changes }, operator) {
      const { before, after } = await document.update(version, () => changes);
      const names = Object.keys(changes) as (keyof typeof changes)[];
      const values = (of: VersionedSettings) => Object.fromEntries(names.map((name) => [name, of[name]]));
      if (names.some((name) => before[name] !== after[name])) {
        const detail = changeDetail(values(before), values(after));
        await audit.record({ event: 'settings.changed', ...madeBy(operator), detail });
      }
      return after;
    },
  };
}

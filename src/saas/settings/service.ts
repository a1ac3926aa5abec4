import type { Clock } from '../../core/kernel/clock.js';
import { type Audit, auditActor, changeDetail, type Operator } from '../../core/ops/audit.js';
import type { Store } from '../../core/storage/collection.js';
import type { SettingsPatch, VersionedSettings } from './schemas.js';
import { DEFAULTS, settingsCollection } from './store.js';
import { createVersionedDocument } from './versioned.js';

/** Settings of the whole installation. */
export type SettingsService = ReturnType<typeof createSettingsService>;

export interface SettingsDependencies {
  store: Store;
  audit: Audit;
  clock: Clock;
}

export function createSettingsService({ store, audit, clock }: SettingsDependencies) {
  const document = createVersionedDocument(settingsCollection(store), { id: 'global', ...DEFAULTS }, clock);

  return {
    /** Returns the same settings, or `undefined` when they must be read from the store. */
    cached: document.cached,
    /** Returns the settings as last read, without a delay; the defaults before the first read. */
    latest: document.latest,
    /** Returns the settings as read at most one second ago, so that every process applies a change within two. */
    current: document.current,

    /** Changes the given settings if the stored version is the one in `patch`. @throws VERSION_CONFLICT */
    async update({ version, ...changes }: SettingsPatch, operator: Operator): Promise<VersionedSettings> {
      const { before, after } = await document.update(version, () => changes);
      const names = Object.keys(changes) as (keyof typeof changes)[];
      const values = (of: VersionedSettings) => Object.fromEntries(names.map((name) => [name, of[name]]));
      if (names.some((name) => before[name] !== after[name])) {
        const detail = changeDetail(values(before), values(after));
        await audit.record({ event: 'settings.changed', ...auditActor(operator), detail });
      }
      return after;
    },
  };
}

import { auditActor, changeDetail, type Operator } from '../../core/ops/audit.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { SettingsPatch, VersionedSettings } from './schemas.js';
import { DEFAULTS, type SettingsDocument, settingsCollection } from './store.js';
import { createVersionedDocument } from './versioned.js';

/** Settings of the whole installation. */
export type SettingsService = ReturnType<typeof createSettingsService>;

export function createSettingsService({ store, commit, audit, clock }: ModuleContext) {
  const document = createVersionedDocument<SettingsDocument>(
    settingsCollection(store),
    { id: 'global', ...DEFAULTS },
    { commit, clock },
  );

  return {
    cached: document.cached,
    latest: document.latest,
    current: document.current,

    /** Changes the given settings if the stored version is the one in `patch`. @throws VERSION_CONFLICT */
    async update({ version, ...changes }: SettingsPatch, operator: Operator): Promise<VersionedSettings> {
      const names = Object.keys(changes) as (keyof typeof changes)[];
      const values = (of: VersionedSettings) => Object.fromEntries(names.map((name) => [name, of[name]]));
      return document.update(
        version,
        () => changes,
        (before, after) => {
          if (names.every((name) => before[name] === after[name])) return undefined;
          const detail = changeDetail(values(before), values(after));
          return audit.entry({ event: 'settings.changed', ...auditActor(operator), detail });
        },
      );
    },
  };
}

import { valueProblem } from '../../core/config/declared-values.js';
import { createEncryption } from '../../core/kernel/encryption.js';
import { type ErrorDetail, httpErrors } from '../../core/kernel/errors.js';
import { suggestion } from '../../core/kernel/text.js';
import { auditActor, changeDetail, type Operator } from '../../core/ops/audit.js';
import type { Job } from '../../core/ops/jobs.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { type CustomSettings, fieldOf } from './definitions.js';
import { type CustomSettingsDocument, type CustomValue, settingsCollection } from './store.js';
import { createVersionedDocument } from './versioned.js';

/** The settings that the host declares. */
export type CustomSettingsService = ReturnType<typeof createCustomSettings>;

export interface DescribedSettings {
  version: number;
  /** The settings that are not secret; null: neither a value nor a default. */
  values: Record<string, CustomValue | null>;
  /** Whether each secret setting has a value. */
  secrets: Record<string, boolean>;
}

const ENCRYPTION_INTERVAL_SECONDS = 60;

export type CustomSettingsContext = Pick<
  ModuleContext,
  'store' | 'commit' | 'audit' | 'clock' | 'random' | 'jobs'
>;

/** @param keys the encryption keys, the current one first */
export function createCustomSettings(
  { store, commit, audit, clock, random }: CustomSettingsContext,
  { definitions, keys }: { definitions: CustomSettings; keys: readonly string[] },
) {
  const encryption = createEncryption({
    keys,
    purpose: 'saas-backend custom settings',
    unreadable: (name) =>
      `The custom setting ${name} cannot be decrypted. Set SETTINGS_ENCRYPTION_KEY or SETTINGS_ENCRYPTION_KEY_PREVIOUS to the key that encrypted it, or set the setting again.`,
    random,
  });
  const defaults: CustomSettingsDocument = { id: 'custom', version: 0, values: {}, secrets: {} };
  const document = createVersionedDocument<CustomSettingsDocument>(settingsCollection(store), defaults, {
    commit,
    clock,
  });
  const entries = Object.entries(definitions);
  const plain = entries.filter(([, { secret }]) => !secret);
  const secretNames = entries.filter(([, { secret }]) => secret).map(([name]) => name);

  /** A stored value that no longer fits the schema, which the host has changed, counts as not set. */
  const plainValueOf = (name: string, stored: CustomSettingsDocument): CustomValue | undefined => {
    const definition = definitions[name];
    const value = Object.hasOwn(stored.values, name) ? stored.values[name] : undefined;
    if (!definition) return undefined;
    return value === undefined || valueProblem(definition.schema, value) !== undefined
      ? definition.default
      : value;
  };

  const secretOf = (name: string, { secrets }: CustomSettingsDocument): string | undefined =>
    Object.hasOwn(secrets, name) ? secrets[name] : undefined;

  const view = (stored: CustomSettingsDocument): DescribedSettings => ({
    version: stored.version,
    values: Object.fromEntries(plain.map(([name]) => [name, plainValueOf(name, stored) ?? null])),
    secrets: Object.fromEntries(secretNames.map((name) => [name, secretOf(name, stored) !== undefined])),
  });

  return {
    /** What the admin area can edit. */
    fields: entries.map(([name, definition]) => fieldOf(name, definition)),

    /**
     * Every setting with its value or default, secret ones decrypted, as stored at most one second ago.
     * @throws Error if a secret setting cannot be decrypted
     */
    async get(): Promise<Record<string, CustomValue | undefined>> {
      const stored = await document.current();
      return Object.fromEntries(
        entries.map(([name, { secret }]) => {
          if (!secret) return [name, plainValueOf(name, stored)];
          const encrypted = secretOf(name, stored);
          return [name, encrypted === undefined ? undefined : encryption.decrypt(name, encrypted)];
        }),
      );
    },

    /** The public ones that have a value. */
    async publicValues(): Promise<Record<string, CustomValue>> {
      const stored = await document.current();
      const values = plain
        .filter(([, definition]) => definition.public)
        .flatMap(([name]) => {
          const value = plainValueOf(name, stored);
          return value === undefined ? [] : [[name, value] as const];
        });
      return Object.fromEntries(values);
    },

    /** What the operator may see. */
    describe: async () => view(await document.current()),

    /**
     * Sets values, or removes those that are null, if the stored version is `version`.
     * @throws VERSION_CONFLICT, VALIDATION_ERROR
     */
    async update(
      { version, values }: { version: number; values: Readonly<Record<string, unknown>> },
      operator: Operator,
    ): Promise<DescribedSettings> {
      const details = problemsOf(definitions, values);
      if (details.length > 0) throw httpErrors.VALIDATION_ERROR({ details });
      const change = (stored: CustomSettingsDocument) => {
        const changed = { values: { ...stored.values }, secrets: { ...stored.secrets } };
        for (const [name, value] of Object.entries(values)) {
          const { secret } = definitions[name] ?? {};
          if (value === null) delete changed[secret ? 'secrets' : 'values'][name];
          else if (secret) changed.secrets[name] = encryption.encrypt(name, value as string);
          else changed.values[name] = value as CustomValue;
        }
        return changed;
      };
      const after = await document.update(version, change, (before, changed) => {
        const detail = describeChange(definitions, before, changed);
        if (detail === null) return undefined;
        return audit.entry({ event: 'settings.custom-changed', ...auditActor(operator), detail });
      });
      return view(after);
    },

    /** Encrypts with the current key what another key has encrypted, or what was not secret before. */
    encryptionJob: {
      everySeconds: ENCRYPTION_INTERVAL_SECONDS,
      async run() {
        const { version, values, secrets } = await document.current();
        const renewed: Record<string, string> = {};
        for (const [name, stored] of Object.entries(secrets)) {
          if (!encryption.isCurrent(name, stored)) renewed[name] = encryption.decrypt(name, stored);
        }
        // The host has declared a setting secret that was not.
        const exposed = secretNames.filter((name) => Object.hasOwn(values, name));
        for (const name of exposed) renewed[name] ??= String(values[name]);
        if (Object.keys(renewed).length === 0) return;
        await document.update(version, (stored) => {
          const remaining = Object.entries(stored.values).filter(([name]) => !exposed.includes(name));
          const encrypted = Object.entries(renewed).map(([name, text]) => [
            name,
            encryption.encrypt(name, text),
          ]);
          return {
            values: Object.fromEntries(remaining),
            secrets: { ...stored.secrets, ...Object.fromEntries(encrypted) },
          };
        });
      },
    } satisfies Job,
  };
}

function problemsOf(definitions: CustomSettings, values: Readonly<Record<string, unknown>>): ErrorDetail[] {
  return Object.entries(values).flatMap(([name, value]) => {
    const path = `values.${name}`;
    const definition = Object.hasOwn(definitions, name) ? definitions[name] : undefined;
    if (!definition) {
      return [{ path, message: `is not a setting.${suggestion(name, Object.keys(definitions))}` }];
    }
    const message = value === null ? undefined : valueProblem(definition.schema, value);
    return message === undefined ? [] : [{ path, message }];
  });
}

/** The detail of the audit record; null without a change. The values of secret settings are not part of it. */
function describeChange(
  definitions: CustomSettings,
  before: CustomSettingsDocument,
  after: CustomSettingsDocument,
): string | null {
  const secretNames = Object.keys(definitions).filter(
    (name) => definitions[name]?.secret && before.secrets[name] !== after.secrets[name],
  );
  const isSame = JSON.stringify(before.values) === JSON.stringify(after.values);
  if (secretNames.length === 0 && isSame) return null;
  const states = ({ secrets }: CustomSettingsDocument, state: string) =>
    Object.fromEntries(secretNames.map((name) => [name, Object.hasOwn(secrets, name) ? state : undefined]));
  return changeDetail(
    { ...before.values, ...states(before, 'secret') },
    { ...after.values, ...states(after, 'new secret') },
  );
}

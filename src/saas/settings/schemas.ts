import type { Static } from 'typebox';
import { Type } from 'typebox';
import { option } from '../../core/config/options.js';
import { Closed, DisplayName } from '../../core/http/schemas.js';
import { secretWeakness } from '../../core/kernel/secrets.js';

const strongSecret = (secret: string | undefined) =>
  secret === undefined ? undefined : secretWeakness(secret, 32);

export const settingsOptions = {
  settingsEncryptionKey: option(Type.Optional(Type.String()), {
    env: 'SETTINGS_ENCRYPTION_KEY',
    doc: 'Secret that encrypts the secret settings of `customSettings` and the secrets of webhooks in the store. At least 32 random bytes in production.',
    secret: true,
    safe: strongSecret,
  }),
  settingsEncryptionKeyPrevious: option(Type.Optional(Type.String()), {
    env: 'SETTINGS_ENCRYPTION_KEY_PREVIOUS',
    doc: 'Another secret that can decrypt them. Set it to the old secret when you rotate SETTINGS_ENCRYPTION_KEY.',
    secret: true,
    safe: strongSecret,
  }),
};

const fields = {
  siteName: Type.String({
    ...DisplayName,
    examples: ['My app'],
    description: 'Name of the product, shown in pages and e-mails.',
  }),
  allowRegistration: Type.Boolean({ description: 'Whether new users can register.' }),
  maintenanceMode: Type.Boolean({
    description: 'Whether requests of users are rejected with 503. The admin area remains available.',
  }),
  emailNotifications: Type.Boolean({
    description: 'Whether notification e-mails are sent. Security e-mails are always sent.',
  }),
};

export const GlobalSettings = Type.Object(fields);
export type GlobalSettings = Static<typeof GlobalSettings>;

/** The settings that are visible without authentication. */
export const PublicSettings = Type.Pick(GlobalSettings, ['siteName', 'allowRegistration', 'maintenanceMode']);

const version = Type.Integer({
  minimum: 0,
  maximum: Number.MAX_SAFE_INTEGER,
  description: 'Incremented by every update; an update sends the version that it has read.',
});

export const VersionedSettings = Type.Object({ ...fields, version });
export type VersionedSettings = Static<typeof VersionedSettings>;

export const SettingsPatch = Closed({ ...Type.Partial(GlobalSettings).properties, version });
export type SettingsPatch = Static<typeof SettingsPatch>;

/** With the values of the host's public settings, if there are any. */
export const PublicSettingsWithCustom = Type.Object({
  ...PublicSettings.properties,
  custom: Type.Record(Type.String(), Type.Unknown()),
});

export const CustomSettingsAnswer = Type.Object({
  version,
  values: Type.Record(Type.String(), Type.Unknown(), {
    description: 'The settings that are not secret, with their value or default; null without either.',
  }),
  secrets: Type.Record(Type.String(), Type.Boolean(), {
    description: 'Whether each secret setting has a value.',
  }),
});

export const CustomSettingsPatch = Closed({
  version,
  values: Type.Record(Type.String(), Type.Unknown(), {
    description: 'Settings to change; null removes a value, so that the default applies.',
  }),
});

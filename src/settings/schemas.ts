import type { Static } from 'typebox';
import { Type } from 'typebox';
import { DisplayName } from '../http/schemas.js';

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

export const SettingsPatch = Type.Object(
  {
    siteName: Type.Optional(fields.siteName),
    allowRegistration: Type.Optional(fields.allowRegistration),
    maintenanceMode: Type.Optional(fields.maintenanceMode),
    emailNotifications: Type.Optional(fields.emailNotifications),
    version,
  },
  { additionalProperties: false },
);
export type SettingsPatch = Static<typeof SettingsPatch>;

import type { Static } from 'typebox';
import { Type } from 'typebox';
import { DisplayName } from '../http/schemas.js';

const fields = {
  siteName: Type.String({
    ...DisplayName,
    examples: ['My app'],
    description: 'Name of the product, shown in pages and mails.',
  }),
  allowRegistration: Type.Boolean({ description: 'Whether new accounts may be made.' }),
  maintenanceMode: Type.Boolean({
    description: 'Whether users are kept out with 503; the admin area stays open.',
  }),
  emailNotifications: Type.Boolean({ description: 'Whether mails beyond security mails are sent.' }),
};

export const GlobalSettings = Type.Object(fields);
export type GlobalSettings = Static<typeof GlobalSettings>;

/** What anybody may know before signing in. */
export const PublicSettings = Type.Pick(GlobalSettings, ['siteName', 'allowRegistration', 'maintenanceMode']);

const version = Type.Integer({
  minimum: 0,
  maximum: Number.MAX_SAFE_INTEGER,
  description: 'Raised by every write; a write names the one it has read.',
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

import type { Static, TObject } from 'typebox';
import { Type } from 'typebox';
import { option } from '../../core/config/options.js';
import { DisplayName, Nullable, Timestamp, User } from '../../core/http/schemas.js';
import { newToken, secretWeakness } from '../../core/kernel/secrets.js';
import { OPERATOR_ROLES } from '../../shared/console-kit/roles.js';

const MIN_ADMIN_PASSWORD_BYTES = 12;

export const adminOptions = {
  adminUsername: option(Type.String({ minLength: 1, default: 'admin' }), {
    env: 'ADMIN_USERNAME',
    doc: 'User name of the admin area.',
    check: (name) =>
      /[:\p{Cc}]/u.test(name) || name.trim() === ''
        ? 'must be a name that is not blank and contains no colon or control character, like admin.'
        : undefined,
  }),
  adminPassword: option(Type.Optional(Type.String({ minLength: 1 })), {
    env: 'ADMIN_PASSWORD',
    doc: 'Password of the admin area, at least 12 characters. Without it, the admin area responds with 503 in production.',
    shown: 'random outside production',
    secret: true,
    generate: (random) => newToken(random).slice(0, 24),
    safe: (password) => secretWeakness(password ?? '', MIN_ADMIN_PASSWORD_BYTES),
  }),
};

export type AdminConfiguration = Static<TObject<typeof adminOptions>>;

/** Browsers omit a checkbox that is not checked. */
const Checkbox = Type.Optional(Type.String({ maxLength: 10 }));

export const SettingsForm = Type.Object({
  siteName: Type.String({ ...DisplayName, examples: ['My app'] }),
  allowRegistration: Checkbox,
  maintenanceMode: Checkbox,
  emailNotifications: Checkbox,
  version: Type.String({
    accepts: 'the version of the settings that the form was rendered with',
    pattern: '^\\d{1,15}$',
  }),
});

/** What runs, what is configured, and where the operator finds more. Contains no secret. */
export const Installation = Type.Object({
  version: Type.String(),
  node: Type.String(),
  environment: Type.Enum(['production', 'development']),
  store: Type.String(),
  parts: Type.Array(
    Type.Object({
      name: Type.String(),
      isConfigured: Type.Boolean(),
      /** How to configure it, as a sentence. */
      remedy: Type.String(),
      /** A file of the package. */
      documentation: Type.String(),
    }),
  ),
  commands: Type.Array(Type.Object({ command: Type.String(), purpose: Type.String() })),
});
export type Installation = Static<typeof Installation>;

/** A user as the operator sees it. */
export const OperatedUser = Type.Object({
  ...User.properties,
  state: Type.Enum(['active', 'suspended', 'deleting']),
  suspendedAt: Nullable(Timestamp),
  granted: Nullable(Type.Object({ plan: Type.String(), since: Timestamp, until: Nullable(Timestamp) })),
  hasPassword: Type.Boolean(),
  /** What operators have written. */
  note: Nullable(Type.Object({ text: Type.String(), by: Type.String(), at: Timestamp })),
  /** In the admin area; absent for everybody but operators. */
  operatorRole: Type.Optional(Type.Enum([...OPERATOR_ROLES])),
});
export type OperatedUser = Static<typeof OperatedUser>;

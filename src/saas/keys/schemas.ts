import { type Static, Type } from 'typebox';
import { option } from '../../core/config/options.js';
import { Closed, DisplayName, Envelope, Nullable, Time, Timestamp } from '../../core/http/schemas.js';
import { defineErrors } from '../../core/kernel/errors.js';

export const BODY_LIMIT = 8 * 1024;

export const keyOptions = {
  apiKeys: option(Type.Boolean({ default: false }), {
    env: 'API_KEYS',
    doc: 'Let users and organizations create API keys, with which their programs call the API: docs/saas/api-keys.md.',
  }),
};

export const keyErrors = defineErrors({
  TOO_MANY_KEYS: [409, 'There are as many API keys as possible. End one first.'],
  KEY_ENDED: [409, 'This key was replaced already, or has expired. Create another one.'],
});

const Id = Type.String({ accepts: 'the ID of a key', pattern: '^key_[0-9a-f]{1,64}$' });
const organization = Type.Optional(
  Type.String({ accepts: 'the ID or slug of an organization', pattern: '^[\\w-]{1,100}$' }),
);
export const KeysParams = Type.Object({ organization });
export const KeyParams = Type.Object({ organization, id: Id });

export const NewKey = Closed({
  name: DisplayName,
  scopes: Type.Array(
    Type.String({ accepts: 'a scope', examples: ['files:read'], pattern: '^[\\x21-\\x7e]{1,128}$' }),
    { minItems: 1, maxItems: 50, description: 'What the key permits: scopes that routes state.' },
  ),
  networks: Type.Optional(
    Type.Array(
      Type.String({
        ...{
          accepts: 'an address or a network',
          examples: ['203.0.113.0/24'],
          pattern: '^[0-9A-Fa-f.:/]{2,43}$',
        },
      }),
      { minItems: 1, maxItems: 50, description: 'From which the key is accepted. Default: from everywhere.' },
    ),
  ),
  expiresAt: Type.Optional(
    Type.String({
      ...{ ...Time, examples: ['2027-01-31T00:00:00Z'] },
      description: 'Default: it does not expire.',
    }),
  ),
});
export type NewKey = Static<typeof NewKey>;

export const RotationBody = Closed({
  overlapSeconds: Type.Optional(
    Type.Integer({
      ...{ minimum: 0, maximum: 7 * 86_400 },
      description: 'How long the key before remains valid. Default: one day.',
    }),
  ),
});

const KeyView = Type.Object({
  id: Type.String(),
  name: Type.String(),
  scopes: Type.Array(Type.String()),
  networks: Type.Array(Type.String(), { description: 'Empty: it is accepted from everywhere.' }),
  userId: Type.String({ description: 'The user who is responsible for it.' }),
  createdAt: Timestamp,
  expiresAt: Nullable(Timestamp),
  replacedBy: Type.Union([Type.String(), Type.Null()], {
    description: 'The key that has replaced it in a rotation.',
  }),
  lastUsedAt: Type.Union([Timestamp, Type.Null()], { description: 'Within five minutes.' }),
  lastUsedFrom: Type.Union([Type.String(), Type.Null()], {
    description: 'The address block of the last use.',
  }),
});
export type KeyView = Static<typeof KeyView>;

export const KeysAnswer = Envelope(
  Type.Object({
    keys: Type.Array(KeyView),
    availableScopes: Type.Array(Type.String(), { description: 'The scopes that a key can have.' }),
  }),
);
const CreatedKey = Type.Object({
  key: KeyView,
  secret: Type.String({ description: 'The key itself, `sk_…`, which is shown only here.' }),
});
export type CreatedKey = Static<typeof CreatedKey>;
export const CreatedKeyAnswer = Envelope(CreatedKey);

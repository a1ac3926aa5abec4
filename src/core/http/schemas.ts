import type { Static, TProperties, TSchema, TString } from 'typebox';
import { Type } from 'typebox';
import { charactersIn } from '../kernel/text.js';
import type { NewUserFields, PublicMetadata, UserFieldsPatch, UserFieldValues } from './user-metadata.js';

/** Schemas that several domains share. */

/** An object without other fields. */
export const Closed = <Fields extends TProperties>(fields: Fields) =>
  Type.Object(fields, { additionalProperties: false });

export const Nullable = <Schema extends TSchema>(schema: Schema) => Type.Union([schema, Type.Null()]);

/** One ASCII address (RFC 5321 without quoting, comments or IDN), which no mail program can read as two. */
export const Email = Type.String({
  accepts: 'one e-mail address of at most 254 ASCII characters',
  trimmed: true,
  examples: ['ada@example.com'],
  maxLength: 254,
  pattern:
    "^(?=.{1,64}@)[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\\.)+[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$",
});

/** Invisible emoji components that follow a flag and encode its region. */
const TAG = '(?:(?=\\p{Emoji_Component})\\p{Default_Ignorable_Code_Point})';

/** No control characters, lone surrogates or bidirectional controls; other invisible characters only after a character they modify. */
const LEGIBLE = [
  '(?:[^\\p{Cc}\\p{Cs}\\p{Default_Ignorable_Code_Point}]',
  // Joiners in words of Arabic and Indic scripts, and in emoji.
  '|(?<=[\\p{Script=Arabic}\\p{Script=Syriac}\\p{M}\\p{Extended_Pictographic}\\p{Emoji_Modifier}])[\\u200c\\u200d]',
  // Variation selectors of Han characters and emoji, keycaps, and regional flags.
  '|(?<=[\\p{Script=Han}\\p{Extended_Pictographic}])\\p{Variation_Selector}|(?<=[0-9#*])\\ufe0f(?=\\u20e3)',
  `|(?<=\u{1f3f4}${TAG}*)${TAG})*`,
].join('');

/** A character with a glyph; U+2800 is the blank braille pattern. */
const VISIBLE = '[^\\p{Z}\\p{C}\\p{Default_Ignorable_Code_Point}\\u2800]';

const NAME = {
  accepts:
    'a name of 1 to 200 characters that is not blank and contains no control or stray invisible characters',
  examples: ['Ada Lovelace'],
  maxLength: 200,
  pattern: `^(?=.*${VISIBLE})${LEGIBLE}$`,
};

/** A display name: one line with at least one visible character. */
export const DisplayName = Type.String(NAME);

/** An optional display name; `""` for none. */
export const OptionalName = Type.String({
  ...NAME,
  accepts:
    'a name of at most 200 characters that is empty or not blank and contains no control or stray invisible characters',
  pattern: `^$|${NAME.pattern}`,
});

/** Whether a text matches a string schema, for code without a validator. */
export function matchesSchema(
  text: string,
  schema: TSchema & { pattern?: string; maxLength?: number },
): boolean {
  const { pattern = '', maxLength = 0 } = schema;
  return charactersIn(text) <= maxLength && new RegExp(pattern, 'u').test(text);
}

/** A password in a request; `Passwords.problem` has the rules for new ones. */
export const PasswordInput = Type.String({ minLength: 1, accepts: 'a password', writeOnly: true });

/** A token in a response: base64url, dots and underscores. */
export const Token = Type.String();

const TIMESTAMP = Symbol('timestamp');

/** ISO 8601, UTC, milliseconds. In responses only: it does not validate. */
export const Timestamp: TString = Object.assign(Type.String(), { [TIMESTAMP]: true });

/** A time that a client sends. */
export const Time = Type.String({
  accepts: 'a time like 2030-01-31T12:00:00Z',
  maxLength: 40,
  pattern: '^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d(:\\d\\d(\\.\\d{1,6})?)?(Z|[+-]\\d\\d:\\d\\d)$',
});

/** Of a text that is `Time`; NaN if it does not exist, as on 31 February, which `Date.parse` reads as 3 March. */
export function readTime(text: string): number {
  const day = text.slice(0, 10);
  const midnight = Date.parse(day);
  return !Number.isNaN(midnight) && toTimestamp(midnight).startsWith(day) ? Date.parse(text) : Number.NaN;
}

/** Whether a schema is `Timestamp`. A `format` in the schema would make the serializer slower. */
export const isTimestamp = (schema: unknown): boolean =>
  typeof schema === 'object' && schema !== null && TIMESTAMP in schema;

/** Converts Unix time in milliseconds, as in documents, to a `Timestamp`. */
export const toTimestamp = (milliseconds: number): string => new Date(milliseconds).toISOString();

export const toTimestampOrNull = (milliseconds: number | undefined): string | null =>
  milliseconds === undefined ? null : toTimestamp(milliseconds);

/** In the query of a list: the `next` of the previous page. */
export const After = Type.Optional(
  Type.String({ accepts: 'the next value of the previous page', maxLength: 1024 }),
);

/** In the response of a list: the `after` of the next page, or null at the end. */
export const Next = Type.Union([Type.String(), Type.Null()]);

/** Binds a ticket to the application that began a sign-in, as in PKCE (RFC 7636). */
export const CodeChallenge = Type.String({
  accepts: 'the SHA-256 of the code verifier in base64url (RFC 7636)',
  pattern: '^[\\w-]{43}$',
});
export const CodeVerifier = Type.String({
  accepts: 'a code verifier (RFC 7636)',
  pattern: '^[\\w.~-]{43,128}$',
  writeOnly: true,
});

/** `{ success: true, data }` */
export function Envelope<T extends TSchema>(data: T) {
  return Type.Object({ success: Type.Literal(true), data });
}

export const Acknowledgement = Type.Object({
  success: Type.Literal(true),
  message: Type.Optional(Type.String()),
});

/**
 * `none` without a subscription, `granted` for a plan granted by the operator, and the statuses of the payment provider.
 * Statuses that the provider adds later are passed through and grant no access.
 */
const SUBSCRIPTION_STATUSES = [
  'none',
  'granted',
  'incomplete',
  'incomplete_expired',
  'trialing',
  'active',
  'past_due',
  'unpaid',
  'paused',
  'canceled',
] as const;
/** The status of a subscription, as the payment provider spells it. */
export type SubscriptionStatus = (typeof SUBSCRIPTION_STATUSES)[number];

/** On the wire any string: see `SubscriptionStatus`. */
export const SubscriptionStatus = Type.Enum(SUBSCRIPTION_STATUSES, { type: 'string' });

/** `entitled` alone decides on access; `plan` is `free` for a user who is not entitled. */
export const SubscriptionSummary = Type.Object({
  status: SubscriptionStatus,
  plan: Type.String(),
  entitled: Type.Boolean(),
});
/** What a user has subscribed to. */
export interface SubscriptionSummary {
  /** Of the best subscription or the granted plan. */
  status: SubscriptionStatus;
  /** `free` for a user who is not entitled. */
  plan: string;
  /** Whether the user has access to what needs a subscription; this alone decides. */
  entitled: boolean;
}

/** An object that the host declares: the document of a running server has its schema in place of the one with this title. */
const declaredObject = <T>(title: string, description: string) =>
  Type.Unsafe<T>({ title, type: 'object', additionalProperties: true, description });

/** In requests, they are validated by what the host has declared: see `fields.ts` of the users. */
export const NewUserFieldsInput = declaredObject<NewUserFields>(
  'NewUserFields',
  'Values of the fields of the option `userFields`, with all that are required.',
);
export const UserFieldsInput = declaredObject<UserFieldsPatch>(
  'UserFieldsPatch',
  'Values of the fields of the option `userFields` that change; `null` removes one.',
);

export const OperatedUserFieldsInput = declaredObject<UserFieldsPatch>(
  'OperatedUserFields',
  'Values of the fields of the option `userFields` that change, also those that users cannot write; `null` removes one.',
);

/** A user in responses. */
export const User = Type.Object({
  id: Type.String(),
  email: Type.String(),
  name: Type.String(),
  createdAt: Timestamp,
  emailVerified: Type.Boolean(),
  roles: Type.Optional(
    Type.Array(Type.String(), { description: 'In the application; absent without the option `userRoles`.' }),
  ),
  subscription: SubscriptionSummary,
  publicMetadata: Type.Optional(
    Type.Unsafe<PublicMetadata>({
      title: 'PublicMetadata',
      type: 'object',
      additionalProperties: true,
      description: 'What the application stores about the user; absent if there is nothing.',
    }),
  ),
  fields: Type.Optional(
    declaredObject<UserFieldValues>(
      'UserFieldValues',
      'The values of the fields of the option `userFields`; absent without the option.',
    ),
  ),
});
/** A user, as they see themselves. An interface, so that `UserMetadata` of the host applies. */
export interface User {
  /** `usr_…` */
  id: string;
  /** In lower case. */
  email: string;
  /** The display name; empty if none is given. */
  name: string;
  /** When the user registered, ISO 8601. */
  createdAt: string;
  /** Whether the user has followed a link sent to the address, or an equal proof exists. */
  emailVerified: boolean;
  /** The roles in the application; absent without the option `userRoles`. */
  roles?: string[];
  /** What the user has subscribed to, now. */
  subscription: SubscriptionSummary;
  /** What the host stores about the user for them to read; absent if there is nothing. */
  publicMetadata?: PublicMetadata;
  /** The values of the fields of the option `userFields`; absent without the option. */
  fields?: UserFieldValues;
}

const Impersonator = Type.Object(
  { userId: Type.String(), email: Type.String(), name: Type.String(), reason: Type.String() },
  { description: 'The operator who acts as the user in this session; absent in sessions of the user.' },
);
/** The operator who acts as a user, as of the start, and why. The name can be empty. */
export type Impersonator = Static<typeof Impersonator>;

/** A session in responses. */
export const Session = Type.Object({
  id: Type.String(),
  createdAt: Timestamp,
  expiresAt: Timestamp,
  authenticatedAt: Type.String({ description: 'When the user last signed in or proved it again.' }),
  amr: Type.Array(Type.String(), {
    description:
      'How: `pwd`, `fed` or `otp` for a password, another provider or a mailed code; with `mfa`, `otp` or `rec` is for a code of an app or a recovery code (RFC 8176).',
  }),
  organizationId: Type.Optional(
    Type.String({ description: 'The organization that is active in this session.' }),
  ),
  impersonator: Type.Optional(Impersonator),
});
/** A session of a user. */
export interface Session {
  /** `ses_…` */
  id: string;
  /** When it started, ISO 8601. */
  createdAt: string;
  /** When its refresh token expires, ISO 8601. */
  expiresAt: string;
  /** When the user last signed in or proved it again, ISO 8601. */
  authenticatedAt: string;
  /** How the user signed in, in the words of RFC 8176: `pwd`, `fed`, `otp`, `pop`; with `mfa` for two factors. */
  amr: string[];
  /** The organization that is active in it, if the user has chosen one. */
  organizationId?: string;
  /** The operator who acts as the user in it; absent in sessions of the user. */
  impersonator?: Impersonator;
}

/** Wraps data in the envelope. */
export function ok<T>(data: T): { success: true; data: T } {
  return { success: true, data };
}

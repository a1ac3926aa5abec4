import type { Static, TSchema, TString } from 'typebox';
import { Type } from 'typebox';
import { charactersIn } from '../kernel/text.js';

/** Shapes that several domains put on the wire. */

/** One ASCII address (RFC 5321 without quoting, comments or IDN): nothing that a mail program could read as two. */
export const Email = Type.String({
  accepts: 'one e-mail address of at most 254 ASCII characters',
  examples: ['ada@example.com'],
  maxLength: 254,
  pattern:
    "^(?=.{1,64}@)[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\\.)+[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$",
});

/** Of the invisible components of emoji, those behind a flag name its region. */
const TAG = '(?:(?=\\p{Emoji_Component})\\p{Default_Ignorable_Code_Point})';

/**
 * No control characters, no lone surrogates, nothing that reverses the text after it, and other invisible characters only
 * where they shape what stands before them.
 */
const LEGIBLE = [
  '(?:[^\\p{Cc}\\p{Cs}\\p{Default_Ignorable_Code_Point}]',
  // Joiners in words of Arabic and Indic scripts, and in emoji.
  '|(?<=[\\p{Script=Arabic}\\p{Script=Syriac}\\p{M}\\p{Extended_Pictographic}\\p{Emoji_Modifier}])[\\u200c\\u200d]',
  // Variants of Han characters and of emoji, keys, and the flags of regions.
  '|(?<=[\\p{Script=Han}\\p{Extended_Pictographic}])\\p{Variation_Selector}|(?<=[0-9#*])\\ufe0f(?=\\u20e3)',
  `|(?<=\u{1f3f4}${TAG}*)${TAG})*`,
].join('');

/** A character with a glyph; U+2800 is a braille cell without dots. */
const VISIBLE = '[^\\p{Z}\\p{C}\\p{Default_Ignorable_Code_Point}\\u2800]';

const NAME = {
  accepts:
    'a name of 1 to 200 characters that is not blank and contains no control or stray invisible characters',
  examples: ['Ada Lovelace'],
  maxLength: 200,
  pattern: `^(?=.*${VISIBLE})${LEGIBLE}$`,
};

/** A display name: one line that shows something. */
export const DisplayName = Type.String(NAME);

/** The display name of a person, who may go without one: `""` says so. */
export const OptionalName = Type.String({
  ...NAME,
  accepts:
    'a name of at most 200 characters that is empty or not blank and contains no control or stray invisible characters',
  pattern: `^$|${NAME.pattern}`,
});

/** Whether a text fits a schema of strings, where there is no validator. */
export function fits(text: string, schema: TSchema & { pattern?: string; maxLength?: number }): boolean {
  const { pattern = '', maxLength = 0 } = schema;
  return charactersIn(text) <= maxLength && new RegExp(pattern, 'u').test(text);
}

/** As the client sends it; `Passwords.problem` has the rules for a new one. */
export const PasswordInput = Type.String({ minLength: 1, accepts: 'a password', writeOnly: true });

const TOKEN = Symbol('token');

/** A token of ours in an answer: base64url, dots and underscores, in which JSON has nothing to escape. */
export const Token: TString = Object.assign(Type.String(), { [TOKEN]: true });

/** Whether a schema is that of a token, which nobody sees who reads it as JSON. */
export const isToken = (schema: unknown): boolean =>
  typeof schema === 'object' && schema !== null && TOKEN in schema;

/** ISO 8601, UTC, milliseconds. */
export const Timestamp = Type.String();

/** Epoch milliseconds, as documents keep time, on the wire. */
export const toTimestamp = (milliseconds: number): string => new Date(milliseconds).toISOString();

/** `{ success: true, data }` */
export function Envelope<T extends TSchema>(data: T) {
  return Type.Object({ success: Type.Literal(true), data });
}

export const Acknowledgement = Type.Object({
  success: Type.Literal(true),
  message: Type.Optional(Type.String()),
});

/**
 * Every status of a subscription: `none` without one, `granted` for a plan that the operator gave, and the eight of the
 * payment provider. A status that the provider introduces later is passed on as it is and grants no access.
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
export type SubscriptionStatus = (typeof SUBSCRIPTION_STATUSES)[number];

/** On the wire any string: see `SubscriptionStatus`. */
export const SubscriptionStatus = Type.Enum(SUBSCRIPTION_STATUSES);

/** `entitled` alone decides on access; `plan` is `free` for a user who is not entitled. */
export const SubscriptionSummary = Type.Object({
  status: SubscriptionStatus,
  plan: Type.String(),
  entitled: Type.Boolean(),
});
export type SubscriptionSummary = Static<typeof SubscriptionSummary>;

/** The user as clients see it. */
export const User = Type.Object({
  id: Type.String(),
  email: Type.String(),
  name: Type.String(),
  createdAt: Timestamp,
  emailVerified: Type.Boolean(),
  subscription: SubscriptionSummary,
});
export type User = Static<typeof User>;

/** The session behind an access token as clients see it. */
export const Session = Type.Object({ id: Type.String(), createdAt: Timestamp, expiresAt: Timestamp });
export type Session = Static<typeof Session>;

/** Answers with `{ success: true, data }`. */
export function ok<T>(data: T): { success: true; data: T } {
  return { success: true, data };
}

import type { Static, TSchema, TString } from 'typebox';
import { Type } from 'typebox';

/** Shapes that several domains put on the wire. */

/** One ASCII address (RFC 5321 without quoting, comments or IDN): nothing that a mail program could read as two. */
export const Email = Type.String({
  maxLength: 254,
  pattern:
    "^(?=.{1,64}@)[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\\.)+[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$",
});

/** A display name: no control characters, no lone surrogates, nothing that reverses the text after it. */
export const DisplayName = Type.String({
  maxLength: 200,
  pattern: '^[^\\p{Cc}\\p{Cs}\\u202a-\\u202e\\u2066-\\u2069]*$',
});

/** What JSON Schema counts: code points. */
export const charactersIn = (text: string): number => [...text].length;

/** Whether a text fits a schema of strings, where there is no validator. */
export function fits(text: string, schema: TSchema & { pattern?: string; maxLength?: number }): boolean {
  const { pattern = '', maxLength = 0 } = schema;
  return charactersIn(text) <= maxLength && new RegExp(pattern, 'u').test(text);
}

/** As the client sends it; `Passwords.problem` has the rules for a new one. */
export const PasswordInput = Type.String({ minLength: 1 });

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

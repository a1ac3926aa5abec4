import { Type } from 'typebox';
import { DisplayName, Envelope, User } from '../kernel/schemas.js';

export const ProfileAnswer = Envelope(User);

const fields = { name: DisplayName };

/** Unlike other bodies, unknown fields are refused by name: a client that sends one expects it to be stored. */
export const ProfilePatch = Type.Object(fields, { propertyNames: { enum: Object.keys(fields) } });

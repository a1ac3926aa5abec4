import { Type } from 'typebox';
import { Envelope, OptionalName, User } from '../kernel/schemas.js';

export const ProfileAnswer = Envelope(User);

export const ProfilePatch = Type.Object({ name: OptionalName }, { additionalProperties: false });

import { Type } from 'typebox';
import { Envelope, OptionalName, User } from '../http/schemas.js';

export const ProfileAnswer = Envelope(User);

export const ProfilePatch = Type.Object({ name: OptionalName }, { additionalProperties: false });

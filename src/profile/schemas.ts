import { Type } from 'typebox';
import { DisplayName, Envelope, User } from '../kernel/schemas.js';

export const ProfileAnswer = Envelope(User);

export const ProfilePatch = Type.Object({ name: DisplayName }, { additionalProperties: false });

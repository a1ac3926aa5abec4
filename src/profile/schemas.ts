import { DisplayName, Envelope, User } from '../kernel/schemas.js';
import { Type } from '../kernel/type.js';

export const ProfileAnswer = Envelope(User);

export const ProfilePatch = Type.Object({ name: DisplayName }, { additionalProperties: false });

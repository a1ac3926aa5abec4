import type { FastifyTypebox } from '../../core/http/routes.js';
import type { User } from '../../core/http/schemas.js';
import { profilePlugin } from './plugin.js';

/** The profile of the signed-in user. */
export type ProfileModule = ReturnType<typeof createProfileModule>;

/** This domain stores nothing: another one stores the users. */
export interface ProfileModuleOptions {
  /** Changes the display name and returns the user; an empty name removes it. */
  rename(userId: string, name: string): Promise<User>;
}

export function createProfileModule({ rename }: ProfileModuleOptions) {
  return {
    plugin: (fastify: FastifyTypebox) => profilePlugin(fastify, { rename }),
  };
}

import type { User } from '../../core/http/schemas.js';
import type { Scope } from '../../core/http/scope.js';
import { profilePlugin } from './plugin.js';

/** The profile of the signed-in user. */
export interface ProfileModule {
  plugin(scope: Scope): Promise<void>;
}

/** This domain stores nothing: another one stores the users. */
export interface ProfileModuleOptions {
  /** Changes the display name and returns the user; an empty name removes it. */
  rename(userId: string, name: string): Promise<User>;
}

export function createProfileModule({ rename }: ProfileModuleOptions): ProfileModule {
  return {
    plugin: (scope) => profilePlugin(scope, { rename }),
  };
}

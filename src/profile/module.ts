import type { Scope } from '../http/scope.js';
import { type ProfilePluginOptions, profilePlugin } from './plugin.js';

/** The profile of the signed-in user. */
export interface ProfileModule {
  plugin(scope: Scope): Promise<void>;
}

/** @param options the functions of the domain that stores the users */
export function createProfileModule(options: ProfilePluginOptions): ProfileModule {
  return { plugin: (scope) => profilePlugin(scope, options) };
}

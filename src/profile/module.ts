import type { Scope } from '../http/scope.js';
import { type ProfilePluginOptions, profilePlugin } from './plugin.js';

/** What users see and change of themselves. */
export interface ProfileModule {
  plugin(scope: Scope): Promise<void>;
}

/** @param options the service of another domain that stores the users */
export function createProfileModule(options: ProfilePluginOptions): ProfileModule {
  return { plugin: (scope) => profilePlugin(scope, options) };
}

import type { Scope } from '../../core/http/scope.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { resourcesPlugin } from './plugin.js';
import { createResourceService, type ResourceService } from './service.js';
import { resourceCollection } from './store.js';

/** The APIs for which the provider issues access tokens. */
export interface ResourcesModule {
  service: ResourceService;
  /** The routes of the administrator. */
  plugin(scope: Scope): Promise<void>;
}

export function createResourcesModule({
  store,
  clock,
}: Pick<ModuleContext, 'store' | 'clock'>): ResourcesModule {
  const service = createResourceService(resourceCollection(store), { clock });
  return { service, plugin: (scope) => resourcesPlugin(scope, { service }) };
}

import type { FastifyTypebox } from '../../core/http/routes.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { resourcesPlugin } from './plugin.js';
import { createResourceService } from './service.js';
import { resourceCollection } from './store.js';

/** The APIs for which the provider issues access tokens. */
export type ResourcesModule = ReturnType<typeof createResourcesModule>;

export function createResourcesModule({ store, clock }: Pick<ModuleContext, 'store' | 'clock'>) {
  const service = createResourceService(resourceCollection(store), { clock });
  return {
    service /** The routes of the administrator. */,
    plugin: (fastify: FastifyTypebox) => resourcesPlugin(fastify, { service }),
  };
}

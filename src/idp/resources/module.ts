import { access, type FastifyTypebox } from '../../core/http/routes.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { ResourceList, ResourceQuery, resourceView } from './schemas.js';
import { createResourceService } from './service.js';
import { resourceCollection } from './store.js';

/** The APIs for which the provider issues access tokens. */
export function createResourcesModule({ store, clock }: ModuleContext) {
  const service = createResourceService(resourceCollection(store), { clock });
  return {
    service,
    /** Lists the resources to the administrator, who cannot change them. */
    async plugin(fastify: FastifyTypebox) {
      fastify.get(
        '/v1/resources',
        { config: access('admin'), schema: { querystring: ResourceQuery, response: { 200: ResourceList } } },
        async ({ query }) => {
          const { items, next } = await service.list(query.after);
          return { resources: items.map(resourceView), next };
        },
      );
    },
  };
}

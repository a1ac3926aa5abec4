import { access, type Scope } from '../../core/http/scope.js';
import { ResourceList, ResourceQuery, resourceView } from './schemas.js';
import type { ResourceService } from './service.js';

export interface ResourcesPluginOptions {
  service: Pick<ResourceService, 'list'>;
}

/** Lists the resources to the administrator, who cannot change them. */
export async function resourcesPlugin(scope: Scope, { service }: ResourcesPluginOptions): Promise<void> {
  scope.get(
    '/v1/resources',
    {
      config: access('admin'),
      schema: { querystring: ResourceQuery, response: { 200: ResourceList } },
    },
    async ({ query }) => {
      const { items, next } = await service.list(query.after);
      return { resources: items.map(resourceView), next };
    },
  );
}

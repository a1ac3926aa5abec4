import type { FastifyInstance } from 'fastify';
import { createRouteDescriptions, type DescribeRoute } from '../http/openapi.js';
import type { ResolvedSaas } from './options.js';

/** The descriptions of the routes for a host that asks for them. */
export async function openRouteDescriptions(
  { prefix: hostPrefix }: FastifyInstance,
  { openapi, prefix, adminPath }: ResolvedSaas['runtime'],
): Promise<DescribeRoute | undefined> {
  if (!openapi) return undefined;
  const [api, admin] = [hostPrefix + prefix, hostPrefix + adminPath];
  return createRouteDescriptions('saas-backend', (url) =>
    adminPath !== false && url.startsWith(`${admin}/`)
      ? `/admin${url.slice(admin.length)}`
      : `/api${url.slice(api.length)}`,
  );
}

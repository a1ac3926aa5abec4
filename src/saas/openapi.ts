import type { FastifyInstance } from 'fastify';
import { createRouteDescriptions, type DescribeRoute } from '../core/http/openapi.js';
import type { ResolvedSaas } from './options.js';

/**
 * The descriptions of the routes for a host that asks for them. The document has the default paths, so those of the
 * installation are translated.
 */
export async function openRouteDescriptions(
  { prefix: hostPrefix }: FastifyInstance,
  { openapi, prefix, adminPath }: ResolvedSaas['runtime'],
): Promise<DescribeRoute | undefined> {
  if (!openapi) return undefined;
  const api = hostPrefix + prefix;
  const admin = adminPath === false ? undefined : hostPrefix + adminPath;
  return createRouteDescriptions('saas-backend', (url) => {
    if (admin !== undefined && url.startsWith(`${admin}/`)) return `/admin${url.slice(admin.length)}`;
    return `/api${url.slice(api.length)}`;
  });
}

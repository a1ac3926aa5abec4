import formbody from '@fastify/formbody';
import { registerCors } from '../../core/http/cors.js';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { parPlugin } from './authorize/par.js';
import { authorizePlugin } from './authorize/plugin.js';
import { deviceAuthorizationPlugin, devicePlugin } from './device/plugin.js';
import { discoveryPlugin } from './discovery.js';
import { logoutPlugin } from './logout.js';
import { revocationsPlugin } from './revocations/plugin.js';
import type { OidcServices } from './services.js';
import { introspectionPlugin, tokensPlugin, userinfoPlugin } from './tokens/plugin.js';

const FORM_LIMIT_BYTES = 16 * 1024;

/**
 * The endpoints of OpenID Connect. Pages of any origin may call those that they need.
 * @param others further routes for them, of other domains
 */
export async function oidcPlugin(
  fastify: FastifyTypebox,
  services: OidcServices,
  others?: (fastify: FastifyTypebox) => Promise<void>,
): Promise<void> {
  // The rules of the enclosing context apply.
  fastify.setErrorHandler(async (error, request) => {
    await services.refusals.recordError(error, request);
    throw error;
  });
  await fastify.register(formbody, { bodyLimit: FORM_LIMIT_BYTES });
  await fastify.register(authorizePlugin, services);
  await fastify.register(logoutPlugin, services);
  await fastify.register(introspectionPlugin, services);
  await fastify.register(revocationsPlugin, services);
  const { device, approvals } = services;
  if (device) await devicePlugin(fastify, { ...services, device });
  if (approvals) {
    const { approvalsPlugin } = await import('./approvals/plugin.js');
    await approvalsPlugin(fastify, { ...services, approvals });
  }
  const publish = async (open: FastifyTypebox): Promise<void> => {
    await discoveryPlugin(open, services);
    await tokensPlugin(open, services);
    await userinfoPlugin(open, services);
    await parPlugin(open, services);
    if (device) await deviceAuthorizationPlugin(open, { ...services, device });
    await others?.(open);
  };
  await registerCors(fastify, ['*'], publish, { exposedHeaders: ['DPoP-Nonce'] });
}

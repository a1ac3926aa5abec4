import formbody from '@fastify/formbody';
import { registerCors } from '../../core/http/cors.js';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { type ParPluginOptions, parPlugin } from './authorize/par.js';
import { type AuthorizePluginOptions, authorizePlugin } from './authorize/plugin.js';
import type { DeviceModule } from './device/module.js';
import type { Directory } from './directory.js';
import { type DiscoveryOptions, discoveryPlugin } from './discovery.js';
import type { FirstPartySignIn } from './first-party-sign-in.js';
import { type LogoutPluginOptions, logoutPlugin } from './logout.js';
import { type RevocationsPluginOptions, revocationsPlugin } from './revocations/plugin.js';
import { introspectionPlugin, type TokensPluginOptions, tokensPlugin } from './tokens/plugin.js';

export type OidcPluginOptions = AuthorizePluginOptions &
  LogoutPluginOptions &
  TokensPluginOptions &
  ParPluginOptions &
  RevocationsPluginOptions &
  DiscoveryOptions & {
    directory: Directory;
    throttle: ParPluginOptions['throttle'];
    /** Absent if the device flow is not enabled. */
    device: DeviceModule | undefined;
    signIn: FirstPartySignIn;
  };

const FORM_LIMIT_BYTES = 16 * 1024;

/** The endpoints of OpenID Connect. Pages of any origin may call those that they need. */
export async function oidcPlugin(fastify: FastifyTypebox, options: OidcPluginOptions): Promise<void> {
  // The rules of the enclosing context apply.
  fastify.setErrorHandler(async (error, request) => {
    await options.refusals.recordError(error, request);
    throw error;
  });
  await fastify.register(formbody, { bodyLimit: FORM_LIMIT_BYTES });
  await fastify.register(authorizePlugin, options);
  await fastify.register(logoutPlugin, options);
  await fastify.register(introspectionPlugin, options);
  await fastify.register(revocationsPlugin, options);
  const { device, pages, signIn: own } = options;
  if (device) await device.plugin(fastify, { pages, own });
  const publish = async (open: FastifyTypebox): Promise<void> => {
    await discoveryPlugin(open, options);
    await tokensPlugin(open, options);
    await parPlugin(open, options);
  };
  await registerCors(fastify, ['*'], publish, { exposedHeaders: ['DPoP-Nonce'] });
}

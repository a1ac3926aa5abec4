import formbody from '@fastify/formbody';
import { registerCors } from '../../core/http/cors.js';
import type { Scope } from '../../core/http/scope.js';
import { type ParPluginOptions, parPlugin } from './authorize/par.js';
import { type AuthorizePluginOptions, authorizePlugin } from './authorize/plugin.js';
import type { DeviceModule } from './device/module.js';
import type { Directory } from './directory.js';
import { type DiscoveryOptions, discoveryPlugin } from './discovery.js';
import { type LogoutPluginOptions, logoutPlugin } from './logout.js';
import type { OwnPages } from './own-pages.js';
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
    ownPages: OwnPages;
  };

const FORM_LIMIT_BYTES = 16 * 1024;

/** The endpoints of OpenID Connect. Pages of any origin may call those that they need. */
export async function oidcPlugin(scope: Scope, options: OidcPluginOptions): Promise<void> {
  // The rules of the enclosing scope answer.
  scope.setErrorHandler(async (error, request) => {
    await options.refusals.recordError(error, request);
    throw error;
  });
  await scope.register(formbody, { bodyLimit: FORM_LIMIT_BYTES });
  await scope.register(authorizePlugin, options);
  await scope.register(logoutPlugin, options);
  await scope.register(introspectionPlugin, options);
  await scope.register(revocationsPlugin, options);
  const { device, pages, ownPages: own } = options;
  if (device) await device.plugin(scope, { pages, own });
  const publish = async (open: Scope): Promise<void> => {
    await discoveryPlugin(open, options);
    await tokensPlugin(open, options);
    await parPlugin(open, options);
  };
  await registerCors(scope, ['*'], publish, { exposedHeaders: ['DPoP-Nonce'] });
}

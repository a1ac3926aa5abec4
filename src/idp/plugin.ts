import type { FastifyInstance } from 'fastify';
import fp from 'fastify-plugin';
import { type HostContext, logConfiguration, pluginContext } from '../core/http/host-context.js';
import type { Mounted } from '../core/server/assembly.js';
import { type Appearance, createAppearance } from './appearance.js';
import { openContext } from './context.js';
import { createDecorator } from './decorator.js';
import { openModules } from './modules.js';
import { type IdentityProviderOptions, idpWarnings, type ResolvedIdp, resolveIdp } from './options.js';
import { createLastKnownAddress } from './provisioning/store.js';
import { logSignUpWarnings } from './resources/warnings.js';
import { registerIdpRoutes } from './routes.js';

/** Creates the modules, mounts them on `fastify` and returns what they share. */
export async function mountIdp(
  fastify: FastifyInstance,
  resolved: ResolvedIdp,
  server?: Appearance & { hostContext: HostContext },
): Promise<Mounted> {
  if (fastify.hasDecorator('idp')) {
    throw new Error(
      "identityProvider is already registered on this instance, or another decorator is named 'idp'. Each registration serves one issuer.",
    );
  }
  const { config, runtime } = resolved;
  logConfiguration(fastify, config, idpWarnings(config));
  const { prefix, random } = runtime;
  const { publicUrl } = config.values;
  const mount = { configured: publicUrl, port: 8080, path: fastify.prefix + prefix };
  const host = server?.hostContext ?? pluginContext(fastify, mount, random);
  const issuer = host.publicUrl.get;
  const { brand, pages, messages } = server ?? createAppearance(config.values, issuer);
  // At the root of a host, the paths may belong to its own pages or to saas-backend.
  const ownsItsPaths = server !== undefined || prefix !== '';
  const hasAccountPages = runtime.accountPages ?? ownsItsPaths;
  const context = await openContext(fastify, resolved, { issuer, brand, pages, messages, hasAccountPages });
  if (!config.production) {
    const { remember } = createLastKnownAddress(context.store);
    fastify.addHook('onListen', () => remember(issuer()));
  }

  const modules = await openModules(context);
  const { guards } = modules.provisioning;
  fastify.decorate('idp', createDecorator(modules.personDirectory, modules.provisioning));
  await registerIdpRoutes(fastify, modules, { context, runtime, host, ownsItsPaths, isServer: !!server });
  // All collections are declared here, so a faulty store prevents the start.
  await context.store.ready();
  if (!config.values.disableSignup) await logSignUpWarnings(modules.resources.service, context.log);
  const metrics = config.values.metrics ? context.metrics : undefined;
  return { store: context.store, metrics: metrics && { metrics, guard: guards.metrics } };
}

/**
 * The identity provider as a Fastify plugin: OpenID Connect and provisioning at the root, or under `prefix`, which
 * is then the path of the issuer. Environment variables apply unless `env` is false; options take precedence.
 *
 * @throws ConfigurationError naming every problem of the configuration
 */
export const identityProvider = fp(
  async (fastify: FastifyInstance, options: IdentityProviderOptions) => {
    await mountIdp(fastify, resolveIdp(options));
  },
  { fastify: '5.x', name: 'identity-provider' },
);

import type { FastifyBaseLogger, FastifyInstance } from 'fastify';
import fp from 'fastify-plugin';
import { type HostContext, logConfiguration, pluginContext } from '../core/http/host-context.js';
import { createAudit } from '../core/ops/audit.js';
import { openMetrics } from '../core/ops/metrics.js';
import type { Mounted } from '../core/server/assembly.js';
import { claimStore } from '../core/server/claimed-store.js';
import { openMeasuredStore } from '../core/server/measured-store.js';
import { createModuleContext, followLifecycle } from '../core/server/module-context.js';
import { rejectUnfinishedCopy } from '../core/server/unfinished-copy.js';
import { ratesOf } from '../core/throttle/options.js';
import { type Appearance, createAppearance } from './appearance.js';
import type { IdentityProviderOptions } from './documented-options.js';
import { createIdpModules, type IdpModules } from './modules.js';
import { adviseIdp, type ResolvedIdp, resolveIdp } from './options.js';
import { createLastKnownAddress } from './provisioning/store.js';
import { adviseOnSignUp } from './resources/advice.js';
import { MAX_RESOURCES } from './resources/service.js';
import { openIdpScopes } from './scopes.js';

/** The host's `fastify.idp`. */
export interface IdpDecorator {
  /** The issuer, exactly as in every id_token. */
  issuer(): string;
  /**
   * A link with which the first operator of the console chooses a user name and a password, once, within an hour; `null` if
   * the store contains a principal or an earlier link is valid. Nothing calls it but `idp serve`.
   */
  createFirstOperatorLink(): Promise<{ url: string; expiresAt: number } | null>;
}

declare module 'fastify' {
  interface FastifyInstance {
    idp: IdpDecorator;
  }
}

/** Creates the modules, mounts them on `fastify` and returns what they share. */
export async function mountIdp(
  fastify: FastifyInstance,
  { config, runtime }: ResolvedIdp,
  server?: Appearance & { hostContext: HostContext },
): Promise<Mounted> {
  if (fastify.hasDecorator('idp')) {
    throw new Error(
      "identityProvider is already registered on this instance, or another decorator is named 'idp'. Each registration serves one issuer.",
    );
  }
  logConfiguration(fastify, config, adviseIdp(config));
  const { values } = config;
  const { prefix, random } = runtime;
  const host =
    server?.hostContext ??
    pluginContext(
      fastify,
      { configured: values.publicUrl, port: 8080, path: fastify.prefix + prefix },
      random,
    );
  const issuer = host.publicUrl.get;
  const { brand, pages, messages } = server ?? createAppearance(values, issuer);
  const metrics = values.metrics ? await openMetrics('idp', runtime.metricsPeers) : undefined;
  const store = await openMeasuredStore(
    runtime.mongo ? { mongo: runtime.mongo, prefix: 'idp_' } : values.databaseUri,
    metrics,
    fastify.log,
  );
  fastify.addHook('onClose', () => store.close());
  await rejectUnfinishedCopy(store);
  await claimStore(store, 'idp');
  if (!config.production) {
    const { remember } = createLastKnownAddress(store);
    fastify.addHook('onListen', () => remember(issuer()));
  }
  const context = createModuleContext(store, {
    ...runtime,
    production: config.production,
    log: fastify.log,
    createAudit,
    throttleSecret: values.ed25519Seed,
    rates: ratesOf(values),
    metrics,
  });
  followLifecycle(fastify, context, values);

  // At the root of a host, the paths may belong to its own pages or to saas-backend.
  const ownsItsPaths = server !== undefined || prefix !== '';
  const hasAccountPages = runtime.accountPages ?? ownsItsPaths;

  const modules = await createIdpModules(context, {
    ...{ config, issuer, hasAccountPages, brand, pages, messages },
    log: fastify.log,
  });
  const { firstOperator, guards } = modules.provisioning;
  fastify.decorate('idp', Object.freeze({ issuer, createFirstOperatorLink: firstOperator.offer }));
  await openIdpScopes(fastify, modules, {
    ...{ runtime, host, pages, store, metrics, ownsItsPaths, hasAccountPages },
    throttle: context.throttle,
    callerSecret: values.callerSecret,
    isServer: server !== undefined,
    hasApiDocs: !config.production,
  });
  // All collections are declared here, so a faulty store prevents the start.
  await store.ready();
  if (!values.disableSignup) await logResourceAdvice(modules, fastify.log);
  return { store, metrics: metrics && { metrics, guard: guards.metrics } };
}

async function logResourceAdvice({ resources }: IdpModules, log: FastifyBaseLogger): Promise<void> {
  const { items } = await resources.service.list(undefined, MAX_RESOURCES);
  for (const { level, about, message, remedy } of adviseOnSignUp(items)) {
    if (level === 'warning') log.warn(`${about}: ${message}. ${remedy}`);
    else log.info(`${about}: ${message}.`);
  }
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

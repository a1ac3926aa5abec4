import type { FastifyInstance } from 'fastify';
import { mountPath } from '../core/config/public-url.js';
import { type HostContext, logConfiguration, pluginContext } from '../core/http/host-context.js';
import { createListedAudit } from '../core/ops/audit.js';
import { openProductContext } from '../core/server/product-context.js';
import { userCollection } from './auth/store.js';
import { type ResolvedSaas, saasWarnings, withAccountPages } from './options.js';

export interface MountOptions {
  /** That of our own server. Default: the plugin is in a host. */
  hostContext?: HostContext;
  /** The scopes that routes of the application state for agents and API keys. */
  agentScopes?: Set<string>;
}

/** What all modules of the product stand on: the context, the configuration and the addresses. */
export type SaasBase = Awaited<ReturnType<typeof openBase>>;

/** Opens the store. */
export async function openBase(
  fastify: FastifyInstance,
  { config, runtime }: ResolvedSaas,
  { hostContext, agentScopes = new Set() }: MountOptions,
) {
  logConfiguration(fastify, config, saasWarnings(config.values));
  const { prefix, accountPath, random } = runtime;
  // As browsers see it.
  const accountAddress = fastify.prefix + accountPath;
  const values = withAccountPages(config.values, accountAddress);
  const host = hostContext ?? pluginContext(fastify, { configured: values.publicUrl, port: 3000 }, random);
  const { publicUrl, mountedAt = () => fastify.prefix + prefix } = host;
  // A proxy takes the path of the public address off.
  const below = () => mountPath(publicUrl.get());
  const context = await openProductContext(fastify, {
    product: 'saas-backend',
    values,
    runtime,
    production: config.production,
    createAudit: createListedAudit,
    throttleSecret: values.jwtRefreshSecret,
  });
  return {
    fastify,
    context,
    /** The documents of users. */
    userDocuments: userCollection(context.store),
    config,
    values,
    runtime,
    host,
    isPlugin: hostContext === undefined,
    agentScopes,
    publicUrl: publicUrl.get,
    /** The public path of the API. */
    mountedAt,
    /** The public address of the API. */
    apiUrl: () => publicUrl.get() + mountedAt(),
    accountAddress,
    /** The path of the public address. */
    below,
    /** The path of the pages for users, which includes what a proxy adds. */
    accountHref: () => below() + accountAddress,
    /** Names the registration, unique in the host. */
    mount: `saas-backend ${fastify.prefix}${prefix}`,
    /** Those of refresh tokens also encrypt what clients keep during a sign-in, the current one first. */
    secrets: [values.jwtRefreshSecret, values.jwtRefreshSecretPrevious].filter((one) => one !== undefined),
    /** The origins of applications that are named: tickets never go to any origin. */
    origins: (values.corsOrigin ?? []).filter((origin) => origin !== '*'),
  };
}

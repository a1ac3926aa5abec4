import type { FastifyInstance } from 'fastify';
import type { Resolved } from '../core/config/options.js';
import { createAudit } from '../core/ops/audit.js';
import type { ModuleContext } from '../core/server/module-context.js';
import { openProductContext } from '../core/server/product-context.js';
import type { Appearance } from './appearance.js';
import type { IdpConfiguration, ResolvedIdp } from './options.js';

/** What the modules of the provider get beside the services of every module. */
export interface IdpContext extends ModuleContext, Appearance, Resolved<IdpConfiguration> {
  issuer(): string;
  /** Whether people have pages at `/account`. */
  hasAccountPages: boolean;
}

/** Opens the store and what all modules use, until `fastify` closes. */
export async function openContext(
  fastify: FastifyInstance,
  { config, runtime }: ResolvedIdp,
  own: Appearance & Pick<IdpContext, 'issuer' | 'hasAccountPages'>,
): Promise<IdpContext> {
  const { values, production } = config;
  const throttleSecret = values.ed25519Seed;
  const options = { product: 'idp', values, runtime, production, createAudit, throttleSecret } as const;
  return { ...config, ...(await openProductContext(fastify, options)), ...own };
}

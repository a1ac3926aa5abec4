import type { FastifyTypebox } from '../../core/http/routes.js';
import { MINUTE } from '../../core/kernel/clock.js';
import { createSealed } from '../../core/kernel/sealed.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { type PasskeyPluginOptions, passkeyPlugin } from './plugin.js';
import { type Ceremony, createPasskeyFlows, type PasskeyFlowsDependencies } from './service.js';

export interface PasskeyApiOptions
  extends Omit<PasskeyFlowsDependencies, 'ceremonies'>,
    Omit<PasskeyPluginOptions, 'flows'> {
  /** The secrets that encrypt what the browser keeps, the current one first. */
  secrets: readonly string[];
}

const CEREMONY_MS = 10 * MINUTE;

/** The JSON API of passkeys. */
export function createPasskeyApi(
  context: Pick<ModuleContext, 'clock' | 'random'>,
  { service, accounts, viewOf, secrets: keys, ...options }: PasskeyApiOptions,
) {
  const sealing = { ...context, keys, lifetimeMs: CEREMONY_MS };
  const ceremonies = createSealed<Ceremony>('ceremonies of passkeys', sealing);
  const flows = createPasskeyFlows({ service, accounts, viewOf, ceremonies });
  return { flows, plugin: (fastify: FastifyTypebox) => passkeyPlugin(fastify, { ...options, flows }) };
}

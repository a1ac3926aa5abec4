import type { FastifyRequest } from 'fastify';
import { access, type FastifyTypebox } from '../http/routes.js';
import type { Store } from '../storage/collection.js';

export type Product = 'saas-backend' | 'idp';

/** The response of `/health`. */
export interface Health {
  status: 'ok';
  /** The running program. Only for requests from this machine, such as those of `doctor`. */
  product?: Product;
  /** A proxy that is not in the list of trusted ones. Only for requests from this machine. */
  unlistedProxy?: string;
}

export interface HealthPluginOptions {
  store: Store;
  /** Converts the state to the response format of the product. */
  wrap(state: Health): object;
  /** Further properties of `/health`. */
  details?(request: FastifyRequest): Omit<Health, 'status'>;
}

/** Liveness, without side effects, and readiness, which checks the store. A stopping server is alive and not ready. */
export async function healthPlugin(
  fastify: FastifyTypebox,
  { store, wrap, details = () => ({}) }: HealthPluginOptions,
): Promise<void> {
  const probe = { duringMaintenance: true, unmetered: true, isProbe: true };
  const alive = access('public', { ...probe, whileDraining: true });
  fastify.get('/health', { config: alive }, async (request) => wrap({ status: 'ok', ...details(request) }));

  const ready = access('public', probe);
  fastify.get('/ready', { config: ready }, async () => {
    await store.ready();
    return wrap({ status: 'ok' });
  });
}

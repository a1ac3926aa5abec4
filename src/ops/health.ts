import type { FastifyRequest } from 'fastify';
import { access, type Scope } from '../http/scope.js';
import type { Store } from '../storage/collection.js';

export type Product = 'saas-backend' | 'idp';

/** What `/health` says. */
export interface Health {
  status: 'ok';
  /** Which program answers. Told to those who ask on this machine: `doctor`. */
  product?: Product;
  /** A proxy that nobody named as one. Told to those who ask on this machine: `doctor`. */
  unlistedProxy?: string;
}

export interface HealthPluginOptions {
  store: Store;
  /** Puts the state into the shape of the scope's other answers. */
  wrap(state: Health): object;
  /** What else is told. */
  remarks?(request: FastifyRequest): Omit<Health, 'status'>;
}

/** Liveness, which touches nothing, and readiness, which asks the store. A server that stops is alive and not ready. */
export async function healthPlugin(
  scope: Scope,
  { store, wrap, remarks = () => ({}) }: HealthPluginOptions,
): Promise<void> {
  const alive = access('public', { duringMaintenance: true, whileDraining: true, unmetered: true });
  scope.get('/health', { config: alive }, async (request) => wrap({ status: 'ok', ...remarks(request) }));

  const ready = access('public', { duringMaintenance: true, unmetered: true });
  scope.get('/ready', { config: ready }, async () => {
    await store.ready();
    return wrap({ status: 'ok' });
  });
}

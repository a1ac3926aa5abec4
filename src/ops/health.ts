import { httpErrors } from '../kernel/errors.js';
import { access, type Scope } from '../kernel/http.js';
import type { Store } from '../storage/collection.js';

/** What the process does at the moment. */
export interface Lifecycle {
  /** Set when the server has begun to stop: no new work should come. */
  draining: boolean;
}

export interface HealthPluginOptions {
  store: Store;
  lifecycle: Lifecycle;
  /** Puts the state into the shape of the scope's other answers. */
  wrap(state: { status: 'ok' }): object;
}

/** Liveness, which touches nothing, and readiness, which asks the store. */
export async function healthPlugin(
  scope: Scope,
  { store, lifecycle, wrap }: HealthPluginOptions,
): Promise<void> {
  const config = access('public', { duringMaintenance: true });

  scope.get('/health', { config }, async () => wrap({ status: 'ok' }));

  scope.get('/ready', { config }, async () => {
    if (lifecycle.draining) throw httpErrors.NOT_READY();
    await store.ready();
    return wrap({ status: 'ok' });
  });
}

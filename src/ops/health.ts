import { access, type Scope } from '../kernel/http.js';
import type { Store } from '../storage/collection.js';

export interface HealthPluginOptions {
  store: Store;
  /** Puts the state into the shape of the scope's other answers. */
  wrap(state: { status: 'ok' }): object;
}

/** Liveness, which touches nothing, and readiness, which asks the store. A server that stops is alive and not ready. */
export async function healthPlugin(scope: Scope, { store, wrap }: HealthPluginOptions): Promise<void> {
  const alive = access('public', { duringMaintenance: true, whileDraining: true, unmetered: true });
  scope.get('/health', { config: alive }, async () => wrap({ status: 'ok' }));

  const ready = access('public', { duringMaintenance: true, unmetered: true });
  scope.get('/ready', { config: ready }, async () => {
    await store.ready();
    return wrap({ status: 'ok' });
  });
}

import type { FastifyTypebox } from '../../core/http/routes.js';
import { DAY } from '../../core/kernel/clock.js';
import { createPurge } from '../../core/ops/purge.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { createKeyAccess, type KeyAccessOptions } from './access.js';
import { type KeyPluginOptions, keysPlugin } from './plugin.js';
import { createKeyService, type KeyServiceOptions } from './service.js';
import { keyCollection } from './store.js';

export interface KeysModuleOptions
  extends KeyServiceOptions,
    KeyAccessOptions,
    Pick<KeyPluginOptions, 'managedBy'> {}

/** Until then, a list shows why a program does not get in any more. */
const KEPT_AFTER_EXPIRY_MS = 30 * DAY;

/** API keys, with which programs of users and organizations call the API. */
export function createKeysModule(context: ModuleContext, options: KeysModuleOptions) {
  const { store, jobs, clock } = context;
  const keys = keyCollection(store);
  const where = () => ({ expiresAt: { lte: clock.now() - KEPT_AFTER_EXPIRY_MS } });
  jobs.add('api-key-purge', createPurge(keys, { where, sort: 'expiresAt' }));
  const service = createKeyService(keys, context, options);
  const { managedBy } = options;
  return {
    service,
    access: createKeyAccess(keys, context, options),
    plugin: (fastify: FastifyTypebox) => keysPlugin(fastify, { service, managedBy }),
  };
}

import type { FastifyTypebox } from '../../core/http/routes.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { createPersonGuard } from './guard.js';
import type { AccountModuleOptions } from './page.js';
import { accountPlugin } from './plugin.js';

/**
 * The pages on which people manage their own accounts. Each product provides the sources of what they show and change, and may
 * add sections and pages.
 */
export type AccountModule = ReturnType<typeof createAccountModule>;

export function createAccountModule({ clock }: Pick<ModuleContext, 'clock'>, options: AccountModuleOptions) {
  const guard = createPersonGuard(options, clock);
  return {
    /** For further pages of the account. */
    guard,
    /** The access levels of the routes below. */
    guards: { person: guard.guard, 'recent-person': guard.recentGuard },
    plugin: (fastify: FastifyTypebox) => accountPlugin(fastify, { ...options, guard }),
  };
}

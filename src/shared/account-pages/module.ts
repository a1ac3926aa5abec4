import type { Guard, Scope } from '../../core/http/scope.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { createPersonGuard, type PersonGuard, type PersonGuardOptions } from './guard.js';
import { type AccountPluginOptions, accountPlugin } from './plugin.js';
import { createAccountService } from './service.js';

/** The pages on which people manage their own accounts. */
export interface AccountModule {
  /** The access levels of the routes below. */
  guards: Record<'person' | 'recent-person', Guard>;
  /** For further pages of the account. */
  guard: PersonGuard;
  plugin(scope: Scope): Promise<void>;
}

export type AccountModuleOptions = Omit<AccountPluginOptions, 'guard' | 'service'> &
  Pick<PersonGuardOptions, 'maxAuthenticationAge' | 'furtherPages'>;

export function createAccountModule(
  { clock }: Pick<ModuleContext, 'clock'>,
  options: AccountModuleOptions,
): AccountModule {
  const guard = createPersonGuard({ ...options, clock });
  const service = createAccountService(options.sources);
  return {
    guard,
    guards: { person: guard.guard, 'recent-person': guard.recentGuard },
    plugin: (scope) => accountPlugin(scope, { ...options, guard, service }),
  };
}

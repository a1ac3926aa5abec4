import type { Pages } from '../../core/http/pages.js';
import type { Guard, Scope } from '../../core/http/scope.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { createConsole } from '../../shared/console-kit/console.js';
import { createFormTokens } from '../../shared/console-kit/forms.js';
import { createOperatorGuard, type SignIn } from './guard.js';
import { consolePlugin, sectionsOf } from './plugin.js';
import type { ConsoleSources } from './sources.js';

/** The console, in which operators manage the provider. */
export interface OperatorsModule {
  /** The access levels of the routes below. */
  guards: Record<'operator', Guard>;
  plugin(scope: Scope): Promise<void>;
}

export interface OperatorsModuleOptions {
  issuer(): string;
  pages: Pages;
  signIn: SignIn;
  sources: ConsoleSources;
}

export function createOperatorsModule(
  { clock }: Pick<ModuleContext, 'clock'>,
  { issuer, pages, signIn, sources }: OperatorsModuleOptions,
): OperatorsModule {
  const { guard, operatorOf } = createOperatorGuard({ signIn, clock, issuer });
  const console = createConsole({
    title: 'Console',
    sections: sectionsOf(sources),
    access: 'operator',
    pages,
    // Bound to the session, so that a form ends with it.
    tokensOf: (request) => createFormTokens({ secret: operatorOf(request).token, clock }),
    nameOf: (request) => operatorOf(request).principal.handle,
    signOutPath: '../logout',
  });
  return {
    guards: { operator: guard },
    plugin: (scope) => consolePlugin(scope, { console, sources, clock }),
  };
}

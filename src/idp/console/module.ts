import type { Pages } from '../../core/http/pages.js';
import type { FastifyTypebox, Guard } from '../../core/http/routes.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { createConsole } from '../../shared/console-kit/console.js';
import { createFormTokens } from '../../shared/console-kit/forms.js';
import { createOperatorGuard, type SignIn } from './guard.js';
import { consolePlugin, sectionsOf } from './plugin.js';
import type { ConsoleSources } from './sources.js';

/** The console, in which operators manage the provider. */
export type OperatorsModule = ReturnType<typeof createOperatorsModule>;

export interface OperatorsModuleOptions {
  issuer(): string;
  pages: Pages;
  signIn: SignIn;
  sources: ConsoleSources;
}

export function createOperatorsModule(
  { clock }: Pick<ModuleContext, 'clock'>,
  { issuer, pages, signIn, sources }: OperatorsModuleOptions,
) {
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
    /** The access levels of the routes below. */
    guards: { operator: guard } satisfies Record<'operator', Guard>,
    plugin: (fastify: FastifyTypebox) => consolePlugin(fastify, { console, sources, clock }),
  };
}

import type { Pages } from '../../core/http/pages.js';
import type { FastifyTypebox, Guard } from '../../core/http/routes.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { createConsole } from '../../shared/console-kit/console.js';
import { createFormTokens } from '../../shared/console-kit/forms.js';
import { createOperatorGuard } from './guard.js';
import { attentionTo } from './overview.js';
import { consolePlugin, sectionsOf } from './plugin.js';
import { type ConsoleDependencies, createConsoleSources } from './sources.js';

export type ConsoleModule = ReturnType<typeof createConsoleModule>;

/** The console, in which operators manage the provider. */
export function createConsoleModule(
  context: ModuleContext & { issuer(): string; pages: Pages },
  deps: ConsoleDependencies,
) {
  const { clock, pages } = context;
  const sources = createConsoleSources(context, deps);
  const { guard, operatorOf } = createOperatorGuard({ ...context, signIn: deps.oidc.signIn });
  const console = createConsole({
    title: 'Console',
    sections: sectionsOf(sources),
    access: 'operator',
    pages,
    clock,
    publicUrl: context.issuer,
    // Bound to the session, so that a form ends with it.
    tokensOf: (request) => createFormTokens({ secret: operatorOf(request).token, clock }),
    nameOf: (request) => operatorOf(request).principal.handle,
    signOutHrefOf: (_request, root) => `${root}../logout`,
  });
  return {
    /** The access levels of the routes below. */
    guards: { operator: guard } satisfies Record<'operator', Guard>,
    plugin: (fastify: FastifyTypebox) => consolePlugin(fastify, { console, sources, clock }),
    /** What needs attention now. */
    readAttention: () => attentionTo({ sources, clock }),
  };
}

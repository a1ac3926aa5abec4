import type { Pages } from '../../core/http/pages.js';
import type { FastifyTypebox, Guard } from '../../core/http/routes.js';
import type { Clock } from '../../core/kernel/clock.js';
import { createConsole } from '../../shared/console-kit/console.js';
import { createFormTokens } from '../../shared/console-kit/forms.js';
import type { FirstPartySignIn } from '../oidc/first-party-sign-in.js';
import { createOperatorGuard } from './guard.js';
import { consolePlugin, sectionsOf } from './plugin.js';
import type { ConsoleSources } from './sources.js';

export interface OperatorsModuleOptions {
  clock: Clock;
  issuer(): string;
  pages: Pages;
  signIn: FirstPartySignIn;
  sources: ConsoleSources;
}

/** The console, in which operators manage the provider. */
export function createOperatorsModule({ clock, issuer, pages, signIn, sources }: OperatorsModuleOptions) {
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

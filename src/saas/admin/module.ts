import type { FastifyTypebox } from '../../core/http/routes.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { createConsole } from '../../shared/console-kit/console.js';
import { createFormTokens } from '../../shared/console-kit/forms.js';
import { DEFAULT_PERIOD } from '../../shared/console-kit/periods.js';
import { namedOperatorOf } from '../../shared/console-kit/roles.js';
import type { OperatorSessions } from '../operators/guard.js';
import { createAdminGuard } from './guard.js';
import { readFigures } from './overview.js';
import { adminPlugin, sectionsOf } from './plugin.js';
import type { AdminConfiguration } from './schemas.js';
import { type AdminSources, createAdminServices } from './services.js';
import { createTrends } from './trends.js';

/** The admin area: its pages, and the HTTP Basic guard of all admin routes. */
export type AdminModule = ReturnType<typeof createAdminModule>;

export interface AdminModuleOptions extends AdminSources {
  config: AdminConfiguration;
  publicUrl: () => string;
  /** Binds the forms of an operator to a session, whose ID is not secret. */
  secret: string;
}

export function createAdminModule(
  context: ModuleContext,
  { config, publicUrl, secret, ...sources }: AdminModuleOptions,
) {
  const { audit, throttle, clock, backgroundTasks } = context;
  const { operators } = sources;
  const { adminUsername: username, adminPassword: password } = config;
  const formTokens = createFormTokens({ secret: `${username}:${password ?? ''}`, clock });
  const tokensOf = ({ sessionId }: { sessionId: string }) =>
    createFormTokens({ secret: `${secret}:${sessionId}`, clock });
  const console = createConsole({
    title: 'Administration',
    sections: sectionsOf(sources),
    access: 'admin',
    api: '/api',
    pages: sources.pages,
    clock,
    publicUrl,
    tokensOf(request) {
      const named = namedOperatorOf(request);
      return named ? tokensOf(named) : formTokens;
    },
    nameOf: () => username,
    signOutHrefOf: (request) => (namedOperatorOf(request) ? operators.signOutHref() : undefined),
  });
  const services = createAdminServices(sources, { console, clock });
  const trendsOf = createTrends(services, backgroundTasks);
  const createGuard =
    (attempt: typeof throttle.attemptAsOperator, sessions?: { operators: OperatorSessions }) =>
    (parent: Parameters<typeof createAdminGuard>[0]) =>
      createAdminGuard(parent, { username, password, audit, attempt, ...sessions });
  return {
    /** Registers @fastify/basic-auth in an encapsulated context of `parent`. */
    createGuard: createGuard(throttle.attemptAsOperator, { operators }),
    /** The same for a route that has to respond while the store fails. */
    createGuardForOutages: createGuard(throttle.attemptAsOperatorInOutage),
    plugin: (fastify: FastifyTypebox) => adminPlugin(fastify, services, trendsOf),
    /** What needs attention now. */
    readAttention: async () => (await readFigures(services, await trendsOf(DEFAULT_PERIOD))).attention,
  };
}

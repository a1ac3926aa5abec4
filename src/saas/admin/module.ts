import type { Pages } from '../../core/http/pages.js';
import type { Guard, Scope } from '../../core/http/scope.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { type Console, createConsole } from '../../shared/console-kit/console.js';
import { createFormTokens } from '../../shared/console-kit/forms.js';
import { createAdminGuard } from './guard.js';
import { type AdminPluginOptions, adminPlugin, sectionsOf } from './plugin.js';
import type { AdminConfiguration } from './schemas.js';

/** The admin area: its pages, and the HTTP Basic guard of all admin routes. */
export interface AdminModule {
  /** Registers @fastify/basic-auth in an encapsulated scope of `parent`. */
  createGuard(parent: Parameters<typeof createAdminGuard>[0]): Promise<Guard>;
  /** The same for a route that has to respond while the store fails. */
  createGuardForOutages(parent: Parameters<typeof createAdminGuard>[0]): Promise<Guard>;
  plugin(scope: Scope): Promise<void>;
}

export interface AdminModuleOptions
  extends Omit<AdminPluginOptions, 'console' | 'clock' | 'backgroundTasks'> {
  config: AdminConfiguration;
  pages: Pages;
}

export function createAdminModule(
  {
    audit,
    throttle,
    clock,
    backgroundTasks,
  }: Pick<ModuleContext, 'audit' | 'throttle' | 'clock' | 'backgroundTasks'>,
  { config: { adminUsername: username, adminPassword: password }, pages, ...sources }: AdminModuleOptions,
): AdminModule {
  const formTokens = createFormTokens({ secret: `${username}:${password ?? ''}`, clock });
  const inOutage = { attemptAsOperator: throttle.attemptAsOperatorInOutage };
  const console: Console = createConsole({
    title: 'Administration',
    sections: sectionsOf(sources),
    access: 'admin',
    api: '/api',
    pages,
    tokensOf: () => formTokens,
    nameOf: () => username,
  });
  return {
    createGuardForOutages: (parent) =>
      createAdminGuard(parent, { username, password, audit, throttle: inOutage }),
    createGuard: (parent) => createAdminGuard(parent, { username, password, audit, throttle }),
    plugin: (scope) => adminPlugin(scope, { ...sources, console, clock, backgroundTasks }),
  };
}

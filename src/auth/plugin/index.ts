import type { Scope } from '../../http/scope.js';
import type { AuthService } from '../service.js';
import { accountPlugin } from './account.js';
import { type ExportPluginOptions, exportPlugin } from './export.js';
import { type LinksPluginOptions, linksPlugin } from './links.js';
import { sessionsPlugin } from './sessions.js';

export interface AuthPluginOptions extends ExportPluginOptions, LinksPluginOptions {
  auth: AuthService;
}

/** Everything about accounts: how sessions begin and end, what mailed links do, and what owners do with theirs. */
export async function authPlugin(scope: Scope, options: AuthPluginOptions): Promise<void> {
  await scope.register(sessionsPlugin, options);
  await scope.register(linksPlugin, options);
  await scope.register(accountPlugin, options);
  await scope.register(exportPlugin, options);
}

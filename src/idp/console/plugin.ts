import type { Scope } from '../../core/http/scope.js';
import type { Clock } from '../../core/kernel/clock.js';
import type { Console } from '../../shared/console-kit/console.js';
import { auditPlugin } from './audit.js';
import { clientsPlugin } from './clients.js';
import { logoutFailuresPlugin } from './logout-failures.js';
import { mailsPlugin } from './mails.js';
import { metadataClientsPlugin } from './metadata-clients.js';
import { overviewPlugin } from './overview.js';
import { principalPagePlugin } from './principal.js';
import { principalActionsPlugin } from './principal-actions.js';
import { principalListsPlugin } from './principals.js';
import { resourcesPlugin } from './resources.js';
import type { ConsoleSources } from './sources.js';

export interface ConsolePluginOptions {
  console: Console;
  sources: ConsoleSources;
  clock: Clock;
}

/** The navigation of the console, in this order. E-mails are part of it only with a mail server. */
export const sectionsOf = ({ mails }: Pick<ConsoleSources, 'mails'>) =>
  SECTIONS.filter(({ path }) => path !== 'mails' || mails);

const SECTIONS = [
  { path: '', label: 'Overview' },
  { path: 'principals', label: 'People and agents' },
  { path: 'invitations', label: 'Invitations' },
  { path: 'clients', label: 'Applications' },
  { path: 'keys', label: 'Keys' },
  { path: 'mails', label: 'E-mails' },
  { path: 'audit', label: 'Audit' },
] as const;

/** The pages of the console. */
export async function consolePlugin(scope: Scope, options: ConsolePluginOptions): Promise<void> {
  await scope.register(overviewPlugin, options);
  await scope.register(principalListsPlugin, options);
  await scope.register(principalPagePlugin, options);
  await scope.register(principalActionsPlugin, options);
  await scope.register(clientsPlugin, options);
  await scope.register(logoutFailuresPlugin, options);
  await scope.register(resourcesPlugin, options);
  const { metadataClients } = options.sources;
  if (metadataClients) await scope.register(metadataClientsPlugin, { ...options, metadataClients });
  await scope.register(mailsPlugin, options);
  await scope.register(auditPlugin, options);
}

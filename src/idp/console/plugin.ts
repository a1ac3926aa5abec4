import type { FastifyTypebox } from '../../core/http/routes.js';
import type { Section } from '../../shared/console-kit/console.js';
import { registerSearch } from '../../shared/console-kit/search.js';
import { registerTimeZone } from '../../shared/console-kit/time-zone-page.js';
import { auditPlugin } from './audit.js';
import { clientsPlugin } from './clients.js';
import { groupsPlugin } from './groups.js';
import { logoutFailuresPlugin } from './logout-failures.js';
import { mailsPlugin } from './mails.js';
import { metadataClientsPlugin } from './metadata-clients.js';
import { overviewPlugin } from './overview.js';
import { permissionActionsPlugin } from './permissions.js';
import { principalPagePlugin } from './principal.js';
import { principalActionsPlugin } from './principal-actions.js';
import { principalListsPlugin } from './principals.js';
import { receiptPlugin } from './receipts.js';
import { resourcesPlugin } from './resources.js';
import type { ConsoleServices, ConsoleSources } from './sources.js';

/** The navigation of the console, in this order. E-mails are part of it only with a mail server. */
export const sectionsOf = ({ mails }: ConsoleSources) =>
  SECTIONS.filter(({ path }) => path !== 'mails' || mails);

const SECTIONS: readonly Section[] = [
  { path: '', label: 'Overview', icon: 'home' },
  { path: 'principals', label: 'People and agents', icon: 'people' },
  { path: 'clients', label: 'Applications', icon: 'application' },
  { path: 'invitations', label: 'Invitations', icon: 'invitation' },
  { path: 'groups', label: 'Groups', icon: 'group' },
  { path: 'keys', label: 'Keys', icon: 'key', group: 'Operation' },
  { path: 'mails', label: 'E-mails', icon: 'mail' },
  { path: 'branding', label: 'Branding', icon: 'brand' },
  { path: 'audit', label: 'Audit', icon: 'audit' },
];

const PLUGINS = [
  ...[overviewPlugin, principalListsPlugin, principalPagePlugin, principalActionsPlugin, groupsPlugin],
  ...[permissionActionsPlugin, receiptPlugin],
  ...[clientsPlugin, logoutFailuresPlugin, resourcesPlugin, metadataClientsPlugin, mailsPlugin, auditPlugin],
];

/** The pages of the console. */
export async function consolePlugin(fastify: FastifyTypebox, options: ConsoleServices): Promise<void> {
  registerSearch(fastify, options.console);
  for (const plugin of PLUGINS) await fastify.register(plugin, options);
  const { console, sources } = options;
  await fastify.register(sources.branding, { console });
  await registerTimeZone(fastify, console);
}

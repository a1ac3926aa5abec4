import type { FastifyTypebox } from '../../core/http/routes.js';
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
import type { ConsoleServices, ConsoleSources } from './sources.js';

/** The navigation of the console, in this order. E-mails are part of it only with a mail server. */
export const sectionsOf = ({ mails }: ConsoleSources) =>
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
export async function consolePlugin(fastify: FastifyTypebox, options: ConsoleServices): Promise<void> {
  await fastify.register(overviewPlugin, options);
  await fastify.register(principalListsPlugin, options);
  await fastify.register(principalPagePlugin, options);
  await fastify.register(principalActionsPlugin, options);
  await fastify.register(clientsPlugin, options);
  await fastify.register(logoutFailuresPlugin, options);
  await fastify.register(resourcesPlugin, options);
  const { metadataClients } = options.sources;
  if (metadataClients) await fastify.register(metadataClientsPlugin, { ...options, metadataClients });
  await fastify.register(mailsPlugin, options);
  await fastify.register(auditPlugin, options);
}

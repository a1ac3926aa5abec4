import type { FastifyTypebox } from '../../core/http/routes.js';
import type { Section } from '../../shared/console-kit/console.js';
import { registerSearch } from '../../shared/console-kit/search.js';
import { registerTimeZone } from '../../shared/console-kit/time-zone-page.js';
import { auditPagePlugin } from './audit.js';
import { billingPagesPlugin } from './billing.js';
import { billingActionsPlugin } from './billing-actions.js';
import { helpPlugin } from './help.js';
import { mailsPlugin } from './mails.js';
import { organizationActionsPlugin } from './organization-actions.js';
import { organizationsPlugin } from './organizations.js';
import { overviewPlugin } from './overview.js';
import type { AdminServices, AdminSources } from './services.js';
import { settingsPagePlugin } from './settings.js';
import type { TrendsOf } from './trends.js';
import { userActionsPlugin } from './user-actions.js';
import { userPagePlugin } from './user-page.js';
import { usersPlugin } from './users.js';
import { webhooksPlugin } from './webhooks.js';

/** The navigation of the admin area, in this order. Organizations and webhooks are part of it only if they are enabled. */
export const sectionsOf = ({ webhooks, organizations }: AdminSources) =>
  SECTIONS.filter(
    ({ path }) => (path !== 'endpoints' || webhooks) && (path !== 'organizations' || organizations),
  );

const SECTIONS: readonly Section[] = [
  { path: '', label: 'Overview', icon: 'home' },
  { path: 'users', label: 'Users', icon: 'people' },
  { path: 'organizations', label: 'Organizations', icon: 'organization' },
  { path: 'subscriptions', label: 'Subscriptions', icon: 'card' },
  { path: 'payments', label: 'Payments', icon: 'payment' },
  { path: 'webhooks', label: 'Payment events', icon: 'event', group: 'Delivery' },
  { path: 'endpoints', label: 'Webhooks', icon: 'hook' },
  { path: 'mails', label: 'E-mails', icon: 'mail' },
  { path: 'branding', label: 'Branding', icon: 'brand' },
  { path: 'audit', label: 'Audit', icon: 'audit', group: 'Operation' },
  { path: 'settings', label: 'Settings', icon: 'settings' },
  { path: 'help', label: 'Help', icon: 'help' },
];

const PLUGINS = [
  ...[usersPlugin, userPagePlugin, userActionsPlugin, organizationsPlugin, organizationActionsPlugin],
  ...[billingPagesPlugin, billingActionsPlugin, webhooksPlugin, mailsPlugin, auditPagePlugin],
  ...[helpPlugin, settingsPagePlugin],
];

/** The pages of the admin area. */
export async function adminPlugin(
  fastify: FastifyTypebox,
  services: AdminServices,
  trendsOf: TrendsOf,
): Promise<void> {
  const { console, webhooks, branding } = services;
  registerSearch(fastify, console);
  await fastify.register(overviewPlugin, { ...services, trendsOf });
  for (const plugin of PLUGINS) await fastify.register(plugin, services);
  if (webhooks) await fastify.register(webhooks.adminPlugin, { console });
  await fastify.register(branding, { console });
  await registerTimeZone(fastify, console);
}

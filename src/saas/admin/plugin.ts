import type { FastifyTypebox } from '../../core/http/routes.js';
import type { Clock } from '../../core/kernel/clock.js';
import type { AuditSearch } from '../../core/ops/audit-search.js';
import type { BrandingPlugin } from '../../shared/branding/page.js';
import type { Console, Section } from '../../shared/console-kit/console.js';
import { registerSearch } from '../../shared/console-kit/search.js';
import { timeZonePlugin } from '../../shared/console-kit/time-zone-page.js';
import type { MailAdministration } from '../../shared/email/administration.js';
import type { EventLog } from '../billing/events/log.js';
import type { BillingRecords } from '../billing/records.js';
import type { CustomSettingsService } from '../settings/custom.js';
import type { SettingsService } from '../settings/service.js';
import { auditPagePlugin } from './audit.js';
import { billingPagesPlugin, ownerColumnOf } from './billing.js';
import { type BillingOperations, billingActionsPlugin } from './billing-actions.js';
import { helpPlugin, type Installation } from './help.js';
import { mailsPlugin } from './mails.js';
import { organizationActionsPlugin } from './organization-actions.js';
import { type OrganizationsSource, organizationsPlugin } from './organizations.js';
import { type OverviewSources, overviewPlugin } from './overview.js';
import { settingsPagePlugin } from './settings.js';
import type { TrendsOf } from './trends.js';
import type { UserAdministration } from './user-actions.js';
import { bulkUserActions } from './user-bulk.js';
import { userPagePlugin } from './user-page.js';
import type { UserSectionSources } from './user-sections.js';
import { createNameOfUser, createResolveUser, usersPlugin } from './users.js';
import { webhooksPlugin } from './webhooks.js';

/** What the domains provide for the admin area. */
export interface AdminSources {
  overview: OverviewSources;
  users: UserAdministration;
  userSections: UserSectionSources;
  billing: BillingRecords;
  /** Absent while no API key of the payment provider is configured. */
  operations: BillingOperations | undefined;
  webhooks: EventLog;
  mails: MailAdministration;
  branding: BrandingPlugin;
  audit: AuditSearch;
  /** Absent if they are not enabled. */
  organizations: OrganizationsSource | undefined;
  settings: SettingsService;
  customSettings: CustomSettingsService | undefined;
  installation: Installation;
  /** The pages of webhooks; absent if they are not enabled. */
  endpoints?: ((fastify: FastifyTypebox, options: { console: Console }) => Promise<void>) | undefined;
}

export interface AdminPluginOptions extends AdminSources {
  console: Console;
  clock: Clock;
  trendsOf: TrendsOf;
}

/** The navigation of the admin area, in this order. Organizations and webhooks are part of it only if they are enabled. */
export const sectionsOf = ({ endpoints, organizations }: AdminSources) =>
  SECTIONS.filter(
    ({ path }) => (path !== 'endpoints' || endpoints) && (path !== 'organizations' || organizations),
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

/** The pages of the admin area. */
export async function adminPlugin(fastify: FastifyTypebox, deps: AdminPluginOptions): Promise<void> {
  const { console, users, clock, organizations } = deps;
  registerSearch(fastify, console);
  const resolveUser = createResolveUser(users.directory, deps.billing);
  const nameOf = createNameOfUser(users.directory);
  await fastify.register(overviewPlugin, { ...deps, sources: deps.overview });
  await fastify.register(usersPlugin, {
    console,
    users: users.directory,
    resolveUser,
    bulk: bulkUserActions(users, clock),
  });
  await fastify.register(userPagePlugin, { console, users, sources: deps.userSections, clock });
  if (organizations) {
    const { audit, userSections: sources } = deps;
    const options = { console, organizations, users, sources, audit, resolveUser, nameOf, clock };
    await fastify.register(organizationsPlugin, options);
    await fastify.register(organizationActionsPlugin, options);
  }
  const ownerColumn = ownerColumnOf(organizations !== undefined);
  const { billing, operations } = deps;
  const canRefund = operations !== undefined;
  await fastify.register(billingPagesPlugin, { console, billing, resolveUser, ownerColumn, canRefund });
  if (operations) await fastify.register(billingActionsPlugin, { console, billing, operations, clock });
  await fastify.register(webhooksPlugin, { console, events: deps.webhooks, resolveUser });
  if (deps.endpoints) await fastify.register(deps.endpoints, { console });
  await fastify.register(deps.branding, { console });
  await fastify.register(timeZonePlugin, { console });
  await fastify.register(mailsPlugin, { console, mails: deps.mails, resolveUser, clock });
  await fastify.register(auditPagePlugin, {
    console,
    audit: deps.audit,
    resolveUser,
    nameOf,
  });
  await fastify.register(helpPlugin, { console, installation: deps.installation });
  await fastify.register(settingsPagePlugin, {
    console,
    settings: deps.settings,
    custom: deps.customSettings,
  });
}

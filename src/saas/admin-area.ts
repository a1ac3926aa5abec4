import { isOrganizationId } from '../core/http/identity.js';
import { httpErrors } from '../core/kernel/errors.js';
import { auditActor, changeDetail, listedAuditCollection, type Operator } from '../core/ops/audit.js';
import { createAuditSearch } from '../core/ops/audit-search.js';
import { type Branding, createBranding } from '../shared/branding/page.js';
import type { BillingOperations } from './admin/billing-actions.js';
import { createAdminModule } from './admin/module.js';
import type { UserAdministration } from './admin/user-actions.js';
import type { SaasBase } from './base.js';
import { billingErrors } from './billing/errors.js';
import { Purchase } from './billing/schemas.js';
import { describeInstallation } from './installation.js';
import type { SaasModules } from './modules.js';
import { saasSchema } from './options.js';
import { OperatedOrganization } from './organizations/administration.js';
import { Member } from './organizations/schemas.js';

/** The admin area, which shows and changes what all domains store. */
export function createAdminArea(base: SaasBase, modules: SaasModules) {
  const { context, config, values, runtime } = base;
  const { users, auth, billing, email, settings, webhooks, pages, organizations, operators } = modules;
  if (runtime.adminPath !== false) context.jobs.add('active-users', auth.activity.job);
  return createAdminModule(context, {
    config: values,
    publicUrl: base.publicUrl,
    overview: {
      users: users.directory,
      sessions: auth.sessions,
      paymentEvents: billing.paymentEvents,
      activity: auth.activity,
      mails: email.service,
      billing: billing.figures,
      duplicates: billing.duplicates,
      endpoints: webhooks?.service,
      settings: settings.service,
    },
    users: userAdministrationOf(base, modules),
    userSections: {
      billing: billing.records,
      purchases: { page: billing.purchases.page, schema: Purchase },
      canRefund: values.paymentSecretKey !== undefined,
      mails: email.service,
      audit: context.audit,
      organizations: organizations?.organizations.listOf,
    },
    organizations: organizations && {
      ...organizations,
      schemas: { organization: OperatedOrganization, member: Member },
    },
    billing: billing.records,
    operations: values.paymentSecretKey === undefined ? undefined : operationsOf(billing),
    webhooks: billing.eventLog,
    mails: email.administration,
    branding: createBranding(brandingOf(base, modules)),
    audit: createAuditSearch(listedAuditCollection(context.store)),
    settings: settings.service,
    customSettings: settings.custom,
    endpoints: webhooks?.adminPlugin,
    installation: describeInstallation(config),
    pages,
    operators,
    signOutHref: operators.signOutHref,
    secret: values.jwtRefreshSecret,
  });
}

function brandingOf(
  { config, values, accountHref }: SaasBase,
  { brand, messages, email }: SaasModules,
): Branding {
  const pages = [
    { label: 'Sign-in', path: '/sign-in' },
    { label: 'Sign-up', path: '/sign-up' },
    { label: 'Forgotten password', path: '/forgot-password' },
    { label: 'Account, after a sign-in', path: '' },
  ];
  return {
    ...{ brand, messages, config, mails: email.administration },
    schema: saasSchema,
    nameHref: 'settings',
    pages: () =>
      values.accountPages ? pages.map(({ label, path }) => ({ label, href: accountHref() + path })) : [],
  };
}

function operationsOf({ changes, refunds, plans }: SaasModules['billing']): BillingOperations {
  const { configured, isPurchase } = plans;
  const prices = configured && (() => [...configured].filter(([, plan]) => !isPurchase(plan)));
  return { changes, refunds, prices };
}

function userAdministrationOf(
  { context: { audit }, values, accountHref }: SaasBase,
  { users, auth, billing, secondFactors, passkeys }: SaasModules,
): UserAdministration {
  const resync = async (ownerId: string, by: Operator): Promise<void> => {
    const kind = isOrganizationId(ownerId) ? 'organization' : 'user';
    const { customers, changes, failures } = await billing.resync.run({ ownerId, skipEvents: true });
    if (failures[0]) throw billingErrors.PAYMENT_PROVIDER_ERROR({ message: failures[0].reason });
    if (customers === 0)
      throw httpErrors.VALIDATION_ERROR({ message: `The ${kind} has no customer at the payment provider.` });
    const statuses = (name: 'before' | 'after') =>
      Object.fromEntries(changes.map((change) => [change.subscriptionId, change[name]]));
    const detail = changeDetail(statuses('before'), statuses('after'));
    await audit.record({ event: `${kind}.resynced`, subject: ownerId, ...auditActor(by), detail });
  };

  return {
    directory: users.directory,
    accounts: auth.service.administration,
    suspension: users.suspension,
    userRoles: users.userRoles,
    setRoles: users.setRoles,
    setOperatorRole: users.setOperatorRole,
    userFields: users.userFields,
    update: auth.service.update,
    impersonationHref:
      values.accountPages && values.impersonationRoles
        ? (id) => `${accountHref()}/impersonate?user=${id}`
        : undefined,
    grants: billing.grants,
    plans: billing.plans.names,
    resync: values.paymentSecretKey === undefined ? undefined : resync,
    secondFactors: secondFactors?.service,
    passkeys: passkeys?.service,
    delete: auth.service.deleteByOperator,
    listCustomers: billing.records.customers,
    listLimits: billing.quotas.list,
    export: auth.exportAccount,
  };
}

import { isOrganizationId } from '../core/http/identity.js';
import { httpErrors } from '../core/kernel/errors.js';
import { type Audit, auditActor, changeDetail, listedAuditCollection } from '../core/ops/audit.js';
import { createAuditSearch } from '../core/ops/audit-search.js';
import { type Branding, createBranding } from '../shared/branding/page.js';
import { createAdminModule } from './admin/module.js';
import type { ProviderOperations } from './admin/services.js';
import type { SaasBase } from './base.js';
import { billingErrors } from './billing/errors.js';
import type { BillingModule } from './billing/module.js';
import { describeInstallation } from './installation.js';
import type { SaasModules } from './modules.js';
import { saasSchema } from './options.js';

/** The admin area, which shows and changes what all domains store. */
export function createAdminArea(base: SaasBase, modules: SaasModules) {
  const { context, config, values, runtime, accountHref } = base;
  const { auth, billing } = modules;
  if (runtime.adminPath !== false) context.jobs.add('active-users', auth.activity.job);
  return createAdminModule(context, {
    ...modules,
    config: values,
    publicUrl: base.publicUrl,
    branding: createBranding(brandingOf(base, modules)),
    installation: describeInstallation(config),
    audit: {
      ...createAuditSearch(listedAuditCollection(context.store)),
      listOf: context.audit.listOf,
    },
    provider: values.paymentSecretKey === undefined ? undefined : providerOperations(billing, context.audit),
    impersonationHref:
      values.accountPages && values.impersonationRoles
        ? (id) => `${accountHref()}/impersonate?user=${id}`
        : undefined,
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

function providerOperations(billing: BillingModule, audit: Audit): ProviderOperations {
  const { configured, isPurchase } = billing.plans;
  return {
    prices: configured && (() => [...configured].filter(([, plan]) => !isPurchase(plan))),
    async resync(ownerId, by) {
      const kind = isOrganizationId(ownerId) ? 'organization' : 'user';
      const { customers, changes, failures } = await billing.resync.run({ ownerId, skipEvents: true });
      if (failures[0]) throw billingErrors.PAYMENT_PROVIDER_ERROR({ message: failures[0].reason });
      if (customers === 0) {
        const message = `The ${kind} has no customer at the payment provider.`;
        throw httpErrors.VALIDATION_ERROR({ message });
      }
      const statuses = (name: 'before' | 'after') =>
        Object.fromEntries(changes.map((change) => [change.subscriptionId, change[name]]));
      const detail = changeDetail(statuses('before'), statuses('after'));
      await audit.record({ event: `${kind}.resynced`, subject: ownerId, ...auditActor(by), detail });
    },
  };
}

import type { Pages } from '../core/http/pages.js';
import { toTimestamp } from '../core/http/schemas.js';
import { DAY } from '../core/kernel/clock.js';
import { httpErrors, invalidFields } from '../core/kernel/errors.js';
import { auditActor, changeDetail, listedAuditCollection, type Operator } from '../core/ops/audit.js';
import { createAuditSearch } from '../core/ops/audit-search.js';
import { OutboxMail } from '../shared/email/administration.js';
import type { EmailModule } from '../shared/email/module.js';
import { type AdminModule, createAdminModule } from './admin/module.js';
import type { UserPageSource } from './admin/user-page.js';
import type { UserSectionSources } from './admin/user-sections.js';
import type { UsersSource } from './admin/users.js';
import type { AuthModule, UsersModule } from './auth/module.js';
import { userNotFound } from './auth/users/users.js';
import type { SaasBase } from './base.js';
import { billingErrors } from './billing/errors.js';
import { EventRecord } from './billing/events/log.js';
import type { BillingModule } from './billing/module.js';
import { billingRecordSchemas } from './billing/records.js';
import { Purchase } from './billing/schemas.js';
import { describeInstallation } from './installation.js';
import type { SettingsModule } from './settings/module.js';
import type { SaasPasskeys, SaasSecondFactors } from './sign-in-methods.js';
import type { WebhooksModule } from './webhooks/module.js';

export interface AdminAreaOptions {
  users: UsersModule;
  auth: AuthModule;
  billing: BillingModule;
  email: EmailModule;
  settings: SettingsModule;
  secondFactors: SaasSecondFactors | undefined;
  passkeys: SaasPasskeys | undefined;
  webhooks: WebhooksModule | undefined;
  pages: Pages;
}

/** The admin area, which shows and changes what all domains store. */
export function createAdminArea(base: SaasBase, options: AdminAreaOptions): AdminModule {
  const { context, config, values, runtime } = base;
  const { users, auth, billing, email, settings, webhooks, pages } = options;
  if (runtime.adminPath !== false) context.jobs.add('active-users', auth.activity.job);
  return createAdminModule(context, {
    config: values,
    overview: {
      users: users.directory,
      sessions: auth.sessions,
      webhookEvents: billing.webhookEvents,
      activity: auth.activity,
      mails: email.service,
      billing: billing.figures,
      duplicates: billing.duplicates,
      endpoints: webhooks?.service,
      settings: settings.service,
    },
    ...createUserAdministration(base, options),
    billing: { ...billing.records, schemas: billingRecordSchemas },
    webhooks: { ...billing.eventLog, schema: EventRecord },
    mails: { ...email.administration, schema: OutboxMail },
    audit: createAuditSearch(listedAuditCollection(context.store)),
    settings: settings.service,
    customSettings: settings.custom,
    endpoints: webhooks?.adminPlugin,
    installation: describeInstallation(config),
    pages,
  });
}

/** What the admin area shows and changes about users. */
function createUserAdministration(
  { context: { audit, clock }, values }: SaasBase,
  {
    users: { directory, suspension },
    auth,
    billing,
    email: { service: mails },
    secondFactors,
    passkeys,
  }: AdminAreaOptions,
): {
  users: UsersSource & UserPageSource;
  userSections: Omit<UserSectionSources, 'billing'>;
} {
  const { administration } = auth.service;
  const { plans } = billing;

  const resync = async (userId: string, by: Operator): Promise<void> => {
    const { customers, changes, failures } = await billing.resync.run({ userId });
    if (failures[0]) throw billingErrors.PAYMENT_PROVIDER_ERROR({ message: failures[0].reason });
    if (customers === 0)
      throw httpErrors.VALIDATION_ERROR({ message: 'The user has no customer at the payment provider.' });
    const statuses = (name: 'before' | 'after') =>
      Object.fromEntries(changes.map((change) => [change.subscriptionId, change[name]]));
    const detail = changeDetail(statuses('before'), statuses('after'));
    await audit.record({ event: 'user.resynced', subject: userId, ...auditActor(by), detail });
  };

  return {
    users: {
      ...directory,
      ...administration,
      suspend: (id, by) => suspension.suspend({ id }, by),
      unsuspend: (id, by) => suspension.unsuspend({ id }, by),
      async rename(id, name, by) {
        await directory.rename(id, name, by);
      },
      grant: (id, { plan, until }, by) =>
        billing.grants.grant(
          id,
          { plan, ...(until !== undefined && { until: endOf(until, clock.now()) }) },
          by,
        ),
      revokeGrant: billing.grants.revoke,
      plans: plans.names && [...plans.names],
      resync: values.paymentSecretKey === undefined ? undefined : resync,
      secondFactors: secondFactors && {
        async since(id) {
          const state = await secondFactors.service.stateOf(id);
          return state && toTimestamp(state.since);
        },
        async remove(id, { name, ip }) {
          const isRemoved = await secondFactors.service.remove(id, { by: name, ip });
          if (!isRemoved) throw httpErrors.VALIDATION_ERROR({ message: 'The user has no second factor.' });
        },
      },
      passkeys: passkeys && {
        count: async (id) => (await passkeys.service.list(id)).length,
        async remove(id, { name, ip }) {
          const removed = await passkeys.service.removeAll(id, { by: name, ip });
          if (removed === 0) throw httpErrors.VALIDATION_ERROR({ message: 'The user has no passkey.' });
        },
      },
      delete: auth.service.deleteByOperator,
      findCustomer: billing.records.customer,
      async export(id, by) {
        if (!(await directory.find({ id }))) throw userNotFound();
        await audit.record({ event: 'user.exported', subject: id, ...auditActor(by) });
        return auth.exportAccount(id);
      },
    },
    userSections: {
      purchases: { page: billing.purchases.page, schema: Purchase },
      listMails: (id, limit) => firstOf(mails.listByUser(id), limit),
      listAudit: async (id, limit) => {
        const records = await firstOf(audit.listOf(id), limit);
        return records.map(({ at, event, by, actor, ip, detail }) => ({
          at: toTimestamp(at),
          event,
          by: by ?? null,
          ...(actor && { actor }),
          ip,
          detail: detail ?? null,
        }));
      },
    },
  };
}

/** The end of a day (UTC). @throws VALIDATION_ERROR if there is no such day, or it has ended */
function endOf(date: string, now: number): number {
  const end = Date.parse(`${date}T00:00:00Z`) + DAY;
  const isDate = Number.isFinite(end) && toTimestamp(end - DAY).startsWith(date);
  if (!isDate || end <= now) {
    throw invalidFields({ path: 'until', message: 'must be today or a later date, like 2027-01-31' });
  }
  return end;
}

async function firstOf<T>(pages: AsyncIterable<readonly T[]>, limit: number): Promise<T[]> {
  for await (const items of pages) return items.slice(0, limit);
  return [];
}

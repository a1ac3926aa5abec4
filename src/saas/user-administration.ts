import { toTimestamp } from '../core/http/schemas.js';
import { type Clock, DAY } from '../core/kernel/clock.js';
import { httpErrors, invalidFields } from '../core/kernel/errors.js';
import { changeDetail, type ListedAudit, madeBy, type Operator } from '../core/ops/audit.js';
import type { EmailService } from '../shared/email/service.js';
import type { FactorService } from '../shared/factors/service.js';
import type { PasskeyService } from '../shared/passkeys/service.js';
import type { UserPageSource } from './admin/user-page.js';
import type { UserSectionSources } from './admin/user-sections.js';
import type { UsersSource } from './admin/users.js';
import type { AuthModule, UsersModule } from './auth/module.js';
import { userNotFound } from './auth/users/users.js';
import { billingErrors } from './billing/errors.js';
import type { BillingModule } from './billing/module.js';
import { Purchase } from './billing/schemas.js';

export interface UserAdministrationDependencies {
  users: UsersModule;
  auth: AuthModule;
  billing: BillingModule;
  /** Whether an API key of the payment provider is configured. */
  hasPaymentKey: boolean;
  mails: Pick<EmailService, 'listByUser'>;
  /** Absent if no encryption key is configured. */
  secondFactors: Pick<FactorService, 'stateOf' | 'remove'> | undefined;
  /** Absent if they are not enabled. */
  passkeys: Pick<PasskeyService, 'list' | 'removeAll'> | undefined;
  audit: ListedAudit;
  clock: Clock;
}

/** What the admin area shows and changes about users, from all domains. */
export function createUserAdministration({
  users: { directory, suspension },
  auth,
  billing,
  hasPaymentKey,
  mails,
  secondFactors,
  passkeys,
  audit,
  clock,
}: UserAdministrationDependencies): {
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
    await audit.record({ event: 'user.resynced', subject: userId, ...madeBy(by), detail });
  };

  return {
    users: {
      ...directory,
      ...administration,
      suspend: (id, by) => suspension.suspend({ id }, by),
      unsuspend: (id, by) => suspension.unsuspend({ id }, by),
      async rename(id, name, by) {
        await directory.rename(id, name, by);
        billing.sendProfiles();
      },
      grant: (id, { plan, until }, by) =>
        billing.grants.grant(
          id,
          { plan, ...(until !== undefined && { until: endOf(until, clock.now()) }) },
          by,
        ),
      revokeGrant: billing.grants.revoke,
      plans: plans.names && [...plans.names],
      resync: hasPaymentKey ? resync : undefined,
      secondFactors: secondFactors && {
        async since(id) {
          const state = await secondFactors.stateOf(id);
          return state && toTimestamp(state.since);
        },
        async remove(id, { name, ip }) {
          const isRemoved = await secondFactors.remove(id, { by: name, ip });
          if (!isRemoved) throw httpErrors.VALIDATION_ERROR({ message: 'The user has no second factor.' });
        },
      },
      passkeys: passkeys && {
        count: async (id) => (await passkeys.list(id)).length,
        async remove(id, { name, ip }) {
          const removed = await passkeys.removeAll(id, { by: name, ip });
          if (removed === 0) throw httpErrors.VALIDATION_ERROR({ message: 'The user has no passkey.' });
        },
      },
      delete: auth.service.deleteByOperator,
      findCustomer: billing.records.customer,
      async export(id, by) {
        if (!(await directory.find({ id }))) throw userNotFound();
        await audit.record({ event: 'user.exported', subject: id, ...madeBy(by) });
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

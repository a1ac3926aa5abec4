import type { AuthModuleOptions } from '../auth/module.js';
import type { BillingModule } from '../billing/module.js';
import type { EmailService } from '../email/service.js';
import type { FederationModule } from '../federation/module.js';
import { type Passkeys, removePasskeys } from '../passkeys/store.js';
import type { ModuleContext } from '../server/module-context.js';
import type { SaasPasskeys } from './passkeys.js';
import type { SaasSecondFactors } from './second-factors.js';

export interface AccountDataSources {
  billing: Pick<BillingModule, 'deletion' | 'service'>;
  mails: Pick<EmailService, 'deleteByUser' | 'listByUser'>;
  /** Also without the option: an account that is deleted or has a new owner loses its passkeys. */
  passkeyDocuments: Passkeys;
  /** What is loaded only if it is configured. Called after the start. */
  optional(): {
    secondFactors: SaasSecondFactors | undefined;
    loginProviders: FederationModule | undefined;
    passkeys: SaasPasskeys | undefined;
  };
  isConfigured: Record<'secondFactors' | 'loginProviders' | 'passkeys', boolean>;
}

/** What the domains other than `auth` store about a user: how it is exported, and when it is deleted. */
export function accountData(
  { audit }: Pick<ModuleContext, 'audit'>,
  { billing, mails, passkeyDocuments, optional, isConfigured }: AccountDataSources,
): Pick<AuthModuleOptions, 'deletionHooks' | 'exportSections' | 'removeOtherLogins'> {
  const deleteLogins = (userId: string) =>
    Promise.all([
      passkeyDocuments.deleteMany({ account: userId }),
      optional().loginProviders?.service.forget(userId),
    ]);

  return {
    deletionHooks: {
      cancelSubscriptions: billing.deletion.cancelSubscriptions,
      async deleteData(userId) {
        await Promise.all([
          billing.deletion.deleteBillingData(userId),
          mails.deleteByUser(userId),
          optional().secondFactors?.service.forget(userId),
          deleteLogins(userId),
        ]);
      },
      async deleteLateData(userId) {
        await Promise.all([billing.deletion.deleteBillingData(userId), deleteLogins(userId)]);
      },
    },
    // The new owner gets no mail about the passkeys of a stranger.
    async removeOtherLogins(userId, origin) {
      await Promise.all([
        removePasskeys(userId, origin, { passkeys: passkeyDocuments, audit }),
        optional().loginProviders?.service.forget(userId),
      ]);
    },
    exportSections: {
      billing: billing.service.recordsOf,
      mails: mails.listByUser,
      ...(isConfigured.secondFactors && {
        secondFactor: async (userId: string) => optional().secondFactors?.service.stateOf(userId),
      }),
      ...(isConfigured.loginProviders && {
        identities: async (userId: string) => optional().loginProviders?.service.list(userId),
      }),
      ...(isConfigured.passkeys && {
        passkeys: async (userId: string) => optional().passkeys?.list(userId),
      }),
    },
  };
}

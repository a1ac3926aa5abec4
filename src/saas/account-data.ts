import type { ModuleContext } from '../core/server/module-context.js';
import type { EmailService } from '../shared/email/service.js';
import { factorCollection, removeFactor } from '../shared/factors/store.js';
import { type Passkeys, removePasskeys } from '../shared/passkeys/store.js';
import { type AgentLinks, removeLinks } from './agents/store.js';
import type { SaasAgents } from './agents.js';
import type { AuthModuleOptions } from './auth/module.js';
import type { EmailLoginModuleOptions } from './auth/sign-in/email-login-module.js';
import type { BillingModule } from './billing/module.js';
import type { FederationModule } from './login-providers/module.js';
import type { SaasConfiguration } from './options.js';
import type { SaasPasskeys } from './passkeys.js';
import type { SaasSecondFactors } from './second-factors.js';
import type { WebhooksModule } from './webhooks/module.js';

export interface AccountDataSources {
  values: Pick<SaasConfiguration, 'login' | 'passkeys' | 'agentIssuer'>;
  billing: Pick<BillingModule, 'deletion' | 'service'>;
  mails: Pick<EmailService, 'deleteByUser' | 'listByUser'>;
  /** Also without the option: an account that is deleted or has a new owner loses its passkeys. */
  passkeyDocuments: Passkeys;
  /** In the same way. */
  agentLinks: AgentLinks;
  secondFactors: SaasSecondFactors | undefined;
  webhooks: Pick<WebhooksModule, 'personalData'> | undefined;
  /** What is loaded later, and only if it is configured. */
  optional(): {
    loginProviders: Pick<FederationModule<unknown>, 'service'> | undefined;
    passkeys: SaasPasskeys | undefined;
    agents: Pick<SaasAgents, 'accounts'> | undefined;
  };
}

type AccountData = Pick<AuthModuleOptions, 'deletionHooks' | 'exportSections' | 'removeOtherLogins'> &
  Pick<EmailLoginModuleOptions, 'forgetCredentials'>;

/** What the domains other than `auth` store about a user: how it is exported, and when it is deleted. */
export function accountData(
  { store, audit, clock }: Pick<ModuleContext, 'store' | 'audit' | 'clock'>,
  {
    values,
    billing,
    mails,
    passkeyDocuments,
    agentLinks,
    secondFactors,
    webhooks,
    optional,
  }: AccountDataSources,
): AccountData {
  const deleteLogins = (userId: string) =>
    Promise.all([
      passkeyDocuments.deleteMany({ account: userId }),
      agentLinks.deleteMany({ userId }),
      optional().loginProviders?.service.forget(userId),
    ]);
  const forgetCredentials = async (userId: string): Promise<void> => {
    await Promise.all([secondFactors?.service.forget(userId), deleteLogins(userId)]);
  };

  return {
    forgetCredentials,
    deletionHooks: {
      cancelSubscriptions: billing.deletion.cancelSubscriptions,
      async deleteData(userId) {
        await Promise.all([
          billing.deletion.deleteBillingData(userId),
          mails.deleteByUser(userId),
          forgetCredentials(userId),
          webhooks?.personalData.forget(userId),
        ]);
      },
      async deleteLateData(userId) {
        await Promise.all([
          billing.deletion.deleteBillingData(userId),
          deleteLogins(userId),
          webhooks?.personalData.forget(userId),
        ]);
      },
    },
    // The new owner gets no mail about what a stranger has set up.
    async removeOtherLogins(userId, origin) {
      await Promise.all([
        removePasskeys(userId, origin, { passkeys: passkeyDocuments, audit }),
        removeLinks(userId, origin, { links: agentLinks, audit }),
        secondFactors && removeFactor(userId, origin, { factors: factorCollection(store), audit, clock }),
        optional().loginProviders?.service.forget(userId),
      ]);
    },
    exportSections: {
      billing: billing.service.recordsOf,
      mails: mails.listByUser,
      ...(webhooks && { webhookDeliveries: webhooks.personalData.listByUser }),
      ...(secondFactors && { secondFactor: secondFactors.service.stateOf }),
      ...(values.login && {
        identities: async (userId: string) => optional().loginProviders?.service.list(userId),
      }),
      ...(values.agentIssuer !== undefined && {
        agentAccounts: async (userId: string) => optional().agents?.accounts.list(userId),
      }),
      ...(values.passkeys && { passkeys: async (userId: string) => optional().passkeys?.flows.list(userId) }),
    },
  };
}

import type { TObject, TOptional, TString } from 'typebox';
import type { RequestSource } from '../../core/http/routes.js';
import type { Clock } from '../../core/kernel/clock.js';
import { httpErrors } from '../../core/kernel/errors.js';
import { auditCollection, type Operator } from '../../core/ops/audit.js';
import { createAuditSearch } from '../../core/ops/audit-search.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { BrandingPlugin } from '../../shared/branding/page.js';
import type { Console } from '../../shared/console-kit/console.js';
import type { EmailModule } from '../../shared/email/module.js';
import type { Groups } from '../groups/service.js';
import type { ConsentService } from '../oidc/consents.js';
import type { OidcModule } from '../oidc/module.js';
import type { Permissions } from '../permissions/service.js';
import type { ProvisioningModule } from '../provisioning/module.js';
import type { RegistrationModule } from '../registration/module.js';
import type { ResourceService } from '../resources/service.js';
import { createSignInDays } from './sign-in-days.js';

export interface ConsoleDependencies {
  provisioning: ProvisioningModule;
  oidc: OidcModule;
  consents: ConsentService;
  resources: ResourceService;
  groups: Groups;
  permissions: Permissions;
  registration: RegistrationModule | undefined;
  email: EmailModule | undefined;
  branding: BrandingPlugin;
}

/** What the console shows and changes. */
export type ConsoleSources = ReturnType<typeof createConsoleSources>;

export function createConsoleSources(
  {
    store,
    accountData,
    audit,
    clock,
    jobs,
  }: Pick<ModuleContext, 'store' | 'accountData' | 'audit' | 'clock' | 'jobs'>,
  {
    provisioning,
    oidc,
    consents,
    resources,
    groups,
    permissions,
    registration,
    email,
    branding,
  }: ConsoleDependencies,
) {
  const { principals, directory, links, clients, agents } = provisioning;
  const signInDays = createSignInDays({ store, clock }, auditCollection(store));
  jobs.add('sign-in-days', signInDays.job);
  const { sessions, delegations, receipts, logoutFailures, publishedKeys: keys } = oidc;
  return {
    principals: {
      ...directory,
      async deleteHuman(sub: string, source: RequestSource) {
        const deleted = await directory.deleteHuman(sub, source);
        if (deleted) await accountData.delete(sub);
        return deleted;
      },
      /** The console vouches for the address in the handle. @throws handle_taken, VALIDATION_ERROR, RATE_LIMITED */
      mintAgent: (input: { handle: string; name?: string }, source: RequestSource) =>
        principals.mintAgent(input, source, true),
      rotate: principals.rotate,
    },
    ...{
      links,
      clients,
      agents,
      groups,
      permissions,
      sessions,
      consents,
      delegations,
      receipts,
      resources,
      logoutFailures,
      keys,
      signInDays,
    },
    /** Absent unless clients may name themselves. */
    metadataClients: registration?.metadataClients,
    audit: { ...createAuditSearch(auditCollection(store)), entry: audit.entry },
    /** Absent without a mail server. */
    mails: email?.administration,
    branding,
  };
}

/** What the pages of the console use. */
export interface ConsoleServices {
  console: Console;
  sources: ConsoleSources;
  clock: Clock;
}

/** The fields of a form: text, and none that was left empty. */
export type TextForm = TObject<Record<string, TOptional<TString>>>;

/** The result of a change. @throws VERSION_CONFLICT if what it changes is not as it was when the form was shown */
export function requireCurrent<T>(result: T | null | false): T {
  if (result === null || result === false) throw httpErrors.VERSION_CONFLICT();
  return result;
}

/** The client of a change by an operator. */
export const operatorSource = ({ name, ip }: Operator): RequestSource => ({
  ip,
  by: name,
  isDisconnected: () => false,
});

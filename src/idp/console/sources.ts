import type { TObject, TOptional, TString } from 'typebox';
import { mustBe } from '../../core/config/validation-messages.js';
import type { RequestSource } from '../../core/http/routes.js';
import { DisplayName, matchesSchema } from '../../core/http/schemas.js';
import type { Clock } from '../../core/kernel/clock.js';
import { httpErrors, invalidFields } from '../../core/kernel/errors.js';
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
import type { PrincipalDocument } from '../provisioning/store.js';
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
  { store, accountData, audit, clock, jobs }: ModuleContext,
  { provisioning, oidc, registration, email, ...services }: ConsoleDependencies,
) {
  const { principals, directory, links, clients, agents } = provisioning;
  const { sessions, delegations, receipts, logoutFailures, publishedKeys: keys } = oidc;
  const records = auditCollection(store);
  const signInDays = createSignInDays({ store, clock }, records);
  jobs.add('sign-in-days', signInDays.job);
  return {
    ...services,
    ...{ links, clients, agents, sessions, delegations, receipts, logoutFailures, keys, signInDays },
    principals: {
      ...directory,
      /** @throws NOT_FOUND */
      async require({ sub = '' }: Record<string, string>): Promise<PrincipalDocument> {
        const found = await directory.get(sub);
        if (!found) throw httpErrors.NOT_FOUND();
        return found;
      },
      async delete(sub: string, source: RequestSource) {
        const deleted = await directory.delete(sub, source);
        if (deleted) await accountData.delete(sub);
        return deleted;
      },
      /** The console vouches for the address in the handle. @throws handle_taken, VALIDATION_ERROR, RATE_LIMITED */
      mintAgent: (input: { handle: string; name?: string }, source: RequestSource) =>
        principals.mintAgent(input, source, true),
      rotate: principals.rotate,
    },
    /** Absent unless clients may name themselves. */
    metadataClients: registration?.metadataClients,
    audit: { ...createAuditSearch(records), entry: audit.entry },
    /** Absent without a mail server. */
    mails: email?.administration,
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

/** The words of a text, which spaces or commas separate. */
export const wordsIn = (text: string | undefined): string[] | undefined =>
  text?.split(/[\s,]+/).filter((word) => word !== '');

/** @throws VALIDATION_ERROR */
export function requireName(name: string): void {
  if (!matchesSchema(name, DisplayName))
    throw invalidFields({ path: 'name', message: mustBe(DisplayName, name) });
}

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

import type { Pages } from '../../core/http/pages.js';
import type { Clock } from '../../core/kernel/clock.js';
import type { ListedAudit, Operator } from '../../core/ops/audit.js';
import type { AuditSearch } from '../../core/ops/audit-search.js';
import type { BrandingPlugin } from '../../shared/branding/page.js';
import type { NameOf } from '../../shared/console-kit/audit.js';
import type { Console } from '../../shared/console-kit/console.js';
import type { EmailModule } from '../../shared/email/module.js';
import type { FactorService } from '../../shared/factors/service.js';
import type { PasskeyService } from '../../shared/passkeys/service.js';
import type { AuthModule, UsersModule } from '../auth/module.js';
import type { BillingModule } from '../billing/module.js';
import type { OperatorSessions } from '../operators/guard.js';
import type { OrganizationsModule } from '../organizations/module.js';
import type { SettingsModule } from '../settings/module.js';
import type { WebhooksModule } from '../webhooks/module.js';
import type { Installation } from './schemas.js';

/** What the admin area shows and changes. Undefined: not configured. */
export interface AdminSources {
  users: UsersModule;
  auth: AuthModule;
  billing: BillingModule;
  email: EmailModule;
  settings: SettingsModule;
  webhooks: WebhooksModule | undefined;
  organizations: OrganizationsModule | undefined;
  secondFactors: { service: FactorService } | undefined;
  passkeys: { service: PasskeyService } | undefined;
  operators: OperatorSessions & { signOutHref(): string };
  pages: Pages;
  branding: BrandingPlugin;
  installation: Installation;
  audit: Pick<ListedAudit, 'listOf'> & AuditSearch;
  /** What operators do at the payment provider. */
  provider: ProviderOperations | undefined;
  /** Where a user with a role for it acts as the one with this ID. */
  impersonationHref: ((id: string) => string) | undefined;
}

export interface ProviderOperations {
  /** Reads the subscriptions of a user or an organization again. */
  resync(ownerId: string, by: Operator): Promise<void>;
  /** The prices of subscriptions, each with its plan; undefined if every price of the provider is for sale. */
  prices: (() => readonly (readonly [priceId: string, plan: string])[]) | undefined;
}

/** What the pages of the admin area use. */
export interface AdminServices extends AdminSources {
  console: Console;
  clock: Clock;
  /** The ID of the user or the organization that an operator means by an ID, an e-mail address or a customer at the provider. */
  resolveUser(text: string): Promise<string | undefined>;
  /** The name and the address of a user by its ID; null for every other text. */
  nameOf: NameOf;
}

export function createAdminServices(
  sources: AdminSources,
  { console, clock }: Pick<AdminServices, 'console' | 'clock'>,
): AdminServices {
  const { find } = sources.users.directory;
  const { ownerOf } = sources.billing.records;
  return {
    ...sources,
    console,
    clock,
    async resolveUser(text) {
      if (text.startsWith('cus_')) return (await ownerOf(text)) ?? undefined;
      return (await find(text.includes('@') ? { email: text } : { id: text }))?.id;
    },
    async nameOf(id) {
      const user = id.startsWith('usr_') ? await find({ id }) : null;
      // A user chooses the name: alone, it might be that of another operator.
      return user && (user.name ? `${user.name} (${user.email})` : user.email);
    },
  };
}

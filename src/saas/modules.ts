import type { Brand } from '../core/http/brand.js';
import type { Messages } from '../core/http/messages.js';
import type { Pages } from '../core/http/pages.js';
import type { EmailModule } from '../shared/email/module.js';
import type { SaasAgents } from './agents.js';
import type { AuthModule, UsersModule } from './auth/module.js';
import type { BillingModule } from './billing/module.js';
import type { SaasEventBus } from './events.js';
import type { SaasKeys } from './keys.js';
import type { LoginProvidersModule } from './login-providers/module.js';
import type { SaasOperators } from './operators.js';
import type { SaasOrganizations } from './organizations.js';
import type { SettingsModule } from './settings/module.js';
import type { SaasPasskeys, SaasSecondFactors } from './sign-in-methods.js';
import type { WebhooksModule } from './webhooks/module.js';

/** The modules of the product, for the areas that show several of them. Undefined: not configured. */
export interface SaasModules {
  webhooks: WebhooksModule | undefined;
  events: SaasEventBus;
  settings: SettingsModule;
  messages: Messages;
  brand: Brand;
  pages: Pages;
  email: EmailModule;
  billing: BillingModule;
  users: UsersModule;
  auth: AuthModule;
  operators: SaasOperators;
  secondFactors: SaasSecondFactors | undefined;
  loginProviders: LoginProvidersModule | undefined;
  passkeys: SaasPasskeys | undefined;
  agents: SaasAgents | undefined;
  organizations: SaasOrganizations | undefined;
  keys: SaasKeys | undefined;
}

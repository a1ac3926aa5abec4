import type { AccountModule } from '../shared/account-pages/module.js';
import type { EmailModule } from '../shared/email/module.js';
import type { IdpConsole } from './console.js';
import type { OidcModule } from './oidc/module.js';
import type { ProvisioningModule } from './provisioning/module.js';
import type { RegistrationModule } from './registration/module.js';
import type { ResourcesModule } from './resources/module.js';

/** The modules that `plugin.ts` creates, for the files that use several of them. Undefined: not configured. */
export interface IdpModules {
  /** Principals, clients, and how they are administered. */
  provisioning: ProvisioningModule;
  resources: ResourcesModule;
  email: EmailModule | undefined;
  oidc: OidcModule;
  registration: RegistrationModule | undefined;
  account: AccountModule;
  /** The pages of operators, below a path of their own. */
  console: IdpConsole;
}

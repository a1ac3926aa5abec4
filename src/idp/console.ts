import type { AuditRecord } from '../core/ops/audit.js';
import { createAuditSearch } from '../core/ops/audit-search.js';
import type { EmailModule } from '../shared/email/module.js';
import { createOperatorsModule } from './console/module.js';
import type { IdpContext } from './context.js';
import type { ConsentService } from './oidc/consents.js';
import type { OidcModule } from './oidc/module.js';
import type { ProvisioningModule } from './provisioning/module.js';
import type { RegistrationModule } from './registration/module.js';
import type { ResourceService } from './resources/service.js';

export type IdpConsole = ReturnType<typeof createConsole>;

export interface ConsoleDependencies {
  provisioning: ProvisioningModule;
  oidc: OidcModule;
  consents: ConsentService;
  resources: ResourceService;
  registration: RegistrationModule | undefined;
  email: EmailModule | undefined;
}

/** The console, with what it shows and changes. */
export function createConsole(context: IdpContext, deps: ConsoleDependencies) {
  const { store, accountData, audit, issuer, pages, clock } = context;
  const { provisioning, oidc, consents, resources, registration, email } = deps;
  const { principals, directory } = provisioning;
  return createOperatorsModule({
    clock,
    issuer,
    pages,
    signIn: oidc.signIn,
    sources: {
      ...provisioning,
      ...oidc,
      principals: {
        ...directory,
        async deleteHuman(sub, source) {
          const deleted = await directory.deleteHuman(sub, source);
          if (deleted) await accountData.delete(sub);
          return deleted;
        },
        mintAgent: (input, source) => principals.mintAgent(input, source, true),
        rotate: principals.rotate,
      },
      consents,
      resources,
      metadataClients: registration?.metadataClients,
      audit: { ...createAuditSearch(store.collection<AuditRecord>('audit')), entry: audit.entry },
      mails: email?.administration,
      keys: oidc.publishedKeys,
    },
  });
}

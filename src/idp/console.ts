import type { AuditRecord } from '../core/ops/audit.js';
import { createAuditSearch } from '../core/ops/audit-search.js';
import type { EmailModule } from '../shared/email/module.js';
import { createOperatorsModule } from './console/module.js';
import type { IdpContext } from './context.js';
import type { GrantedAccess } from './oidc/granted-access.js';
import type { OidcModule } from './oidc/module.js';
import type { ProvisioningModule } from './provisioning/module.js';
import type { RegistrationModule } from './registration/module.js';
import type { ResourcesModule } from './resources/module.js';

export interface ConsoleDependencies {
  provisioning: ProvisioningModule;
  oidc: OidcModule;
  granted: GrantedAccess;
  resources: ResourcesModule;
  registration: RegistrationModule | undefined;
  email: EmailModule | undefined;
  /** Removes what is stored about a deleted person beside the account. */
  forget(sub: string): Promise<void>;
}

/** The console, with what it shows and changes. */
export function createConsole(
  context: IdpContext,
  { provisioning, oidc, granted, resources, registration, email, forget }: ConsoleDependencies,
) {
  const { store, audit, issuer, pages } = context;
  const { principals, directory, links, clients } = provisioning;
  return createOperatorsModule(context, {
    issuer,
    pages,
    signIn: oidc.signIn,
    sources: {
      principals: {
        ...directory,
        async deleteHuman(sub, source) {
          const deleted = await directory.deleteHuman(sub, source);
          if (deleted) await forget(sub);
          return deleted;
        },
        mintAgent: (input, source) => principals.mintAgent(input, source, true),
        rotate: principals.rotate,
      },
      links,
      clients,
      sessions: oidc.sessions,
      consents: granted.consents,
      delegations: oidc.delegations,
      logoutFailures: oidc.logoutFailures,
      resources: resources.service,
      metadataClients: registration?.metadataClients,
      audit: { ...createAuditSearch(store.collection<AuditRecord>('audit')), record: audit.record },
      mails: email?.administration,
      keys: oidc.publishedKeys,
    },
  });
}

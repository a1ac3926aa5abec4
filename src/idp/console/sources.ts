import type { RequestSource } from '../../core/http/routes.js';
import type { Audit, Operator } from '../../core/ops/audit.js';
import type { AuditSearch } from '../../core/ops/audit-search.js';
import type { Outbox } from '../../shared/console-kit/outbox.js';
import type { LogoutFailures } from '../oidc/backchannel/service.js';
import type { ConsentService } from '../oidc/consents.js';
import type { Delegations } from '../oidc/delegations/service.js';
import type { PublishedKey } from '../oidc/keys.js';
import type { SessionService } from '../oidc/sessions.js';
import type { Clients } from '../provisioning/clients.js';
import type { PrincipalDirectory } from '../provisioning/directory.js';
import type { Links } from '../provisioning/links.js';
import type { Principals } from '../provisioning/principals.js';
import type { PrincipalDocument } from '../provisioning/store.js';
import type { MetadataClients } from '../registration/client-ids.js';
import type { ResourceService } from '../resources/service.js';

/** What the console shows and changes. */
export interface ConsoleSources {
  principals: PrincipalDirectory & {
    /** The console vouches for the address in the handle. @throws handle_taken, VALIDATION_ERROR, RATE_LIMITED */
    mintAgent(
      input: { handle: string; name?: string },
      source: RequestSource,
    ): Promise<{ agent: PrincipalDocument; password: string }>;
    rotate: Principals['rotate'];
  };
  links: Pick<Links, 'invite' | 'reset' | 'withdraw'>;
  clients: Clients;
  sessions: Pick<SessionService, 'list' | 'end'>;
  consents: Pick<ConsentService, 'list'>;
  delegations: Pick<Delegations, 'list' | 'end'>;
  /** Absent unless clients may name themselves. */
  metadataClients: MetadataClients | undefined;
  resources: Pick<ResourceService, 'list'>;
  logoutFailures: LogoutFailures;
  audit: AuditSearch & Pick<Audit, 'record'>;
  /** Absent without a mail server. */
  mails: Outbox | undefined;
  keys: readonly PublishedKey[];
}

/** The client of a change by an operator. */
export const operatorSource = ({ name, ip }: Operator): RequestSource => ({
  ip,
  by: name,
  isDisconnected: () => false,
});

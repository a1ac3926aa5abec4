import type { TObject, TOptional, TString } from 'typebox';
import type { RequestSource } from '../../core/http/routes.js';
import type { Clock } from '../../core/kernel/clock.js';
import type { Audit, Operator } from '../../core/ops/audit.js';
import type { AuditSearch } from '../../core/ops/audit-search.js';
import type { Console } from '../../shared/console-kit/console.js';
import type { Outbox } from '../../shared/console-kit/outbox.js';
import type { ConsentService } from '../oidc/consents.js';
import type { PublishedKey } from '../oidc/keys.js';
import type { OidcModule } from '../oidc/module.js';
import type { SessionService } from '../oidc/sessions.js';
import type { Clients } from '../provisioning/clients.js';
import type { PrincipalDirectory } from '../provisioning/directory.js';
import type { Links } from '../provisioning/links.js';
import type { Principals } from '../provisioning/principals.js';
import type { MetadataClients } from '../registration/client-ids.js';
import type { ResourceService } from '../resources/service.js';

/** What the console shows and changes. */
export interface ConsoleSources {
  principals: PrincipalDirectory & {
    /** The console vouches for the address in the handle. @throws handle_taken, VALIDATION_ERROR, RATE_LIMITED */
    mintAgent(
      input: { handle: string; name?: string },
      source: RequestSource,
    ): ReturnType<Principals['mintAgent']>;
    rotate: Principals['rotate'];
  };
  links: Links;
  clients: Clients;
  sessions: SessionService;
  consents: ConsentService;
  delegations: OidcModule['delegations'];
  /** Absent unless clients may name themselves. */
  metadataClients: MetadataClients | undefined;
  resources: ResourceService;
  logoutFailures: OidcModule['logoutFailures'];
  audit: AuditSearch & Pick<Audit, 'entry'>;
  /** Absent without a mail server. */
  mails: Outbox | undefined;
  keys: readonly PublishedKey[];
}

/** What the pages of the console use. */
export interface ConsoleServices {
  console: Console;
  sources: ConsoleSources;
  clock: Clock;
}

/** The fields of a form: text, and none that was left empty. */
export type TextForm = TObject<Record<string, TOptional<TString>>>;

/** The client of a change by an operator. */
export const operatorSource = ({ name, ip }: Operator): RequestSource => ({
  ip,
  by: name,
  isDisconnected: () => false,
});

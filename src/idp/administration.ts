import { defineOptions, resolveOptions } from '../config/options.js';
import { createPublicUrl } from '../config/public-url.js';
import { factorCollection, removeFactor } from '../factors/store.js';
import { systemRandom } from '../kernel/secrets.js';
import { announceEnd, logoutNoticeCollection } from '../oidc/backchannel/store.js';
import { createAudit } from '../ops/audit.js';
import { createProvisioningModule, type ProvisioningModule } from '../provisioning/module.js';
import { createLastKnownAddress } from '../provisioning/store.js';
import { createCommandContext } from '../server/module-context.js';
import { idpServerSchema } from '../server/options.js';
import { openExistingStore, openStore } from '../storage/open.js';
import { idpSchema, idTokenAlgorithmsOf } from './options.js';

/** Principals and clients for the operator of the machine: the module of the server, without limits. */
export interface ProvisioningAdministration
  extends Pick<ProvisioningModule, 'principals' | 'links' | 'directory' | 'clients' | 'operators'> {
  /** Removes the second factor of a person; false without one. */
  removeFactor(sub: string): Promise<boolean>;
  close(): Promise<void>;
}

/** The origin of commands in audit records. */
export const ON_THE_HOST = { ip: 'cli', isDisconnected: () => false };

/**
 * Opens the store of `IDP_DATABASE_URI`. A server may use it at the same time.
 *
 * @param warn called with each warning, as a sentence
 * @param create whether to create a store that does not exist
 * @throws ConfigurationError, StoreUnavailable
 */
export async function openProvisioning(
  warn: (message: string) => void,
  { create }: { create: boolean },
): Promise<ProvisioningAdministration> {
  const { databaseUri, publicUrl, es256Key } = idpSchema.properties;
  const { values, production } = resolveOptions(
    defineOptions({ databaseUri, publicUrl, es256Key, port: idpServerSchema.properties.port }),
    { program: 'idp', given: {}, env: undefined, random: systemRandom },
  );
  const store = await (create ? openStore : openExistingStore)(values.databaseUri);
  const base = values.publicUrl ?? (await createLastKnownAddress(store).recall());
  const notices = logoutNoticeCollection(store);
  const context = createCommandContext(store, { production, warn, createAudit });
  const { principals, links, directory, clients, operators } = createProvisioningModule(context, {
    issuer: createPublicUrl(base, values.port).get,
    allowHttp: !production,
    isSignupOpen: false,
    idTokenAlgorithms: idTokenAlgorithmsOf(values),
    // A server sends the notices.
    async endSessions(sub, change) {
      await announceEnd(notices, { sub }, context.clock.now());
      return change();
    },
  });
  const factors = factorCollection(store);
  return {
    ...{ principals, links, directory, clients, operators },
    removeFactor: (sub) => removeFactor(sub, ON_THE_HOST, { ...context, factors }),
    close: () => store.close(),
  };
}

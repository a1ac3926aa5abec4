import { defineOptions, resolveOptions } from '../config/options.js';
import { createPublicUrl } from '../config/public-url.js';
import { systemClock } from '../kernel/clock.js';
import { systemRandom } from '../kernel/secrets.js';
import { createAudit } from '../ops/audit.js';
import { createPasswordPolicy } from '../passwords/common.js';
import { createPasswords } from '../passwords/hasher.js';
import { type Clients, createClients } from '../provisioning/clients.js';
import { createDirectory, type PrincipalDirectory } from '../provisioning/directory.js';
import { createLastKnownAddress } from '../provisioning/last-known-address.js';
import { createLinks, type Links } from '../provisioning/links.js';
import { createPrincipals, type Principals } from '../provisioning/principals.js';
import { clientCollection, principalCollection } from '../provisioning/store.js';
import { idpServerSchema } from '../server/options.js';
import { openExistingStore, openStore } from '../storage/open.js';
import { idpSchema } from './options.js';

/** Principals and clients, for whoever has the machine: by the services that HTTP uses, without its limits. */
export interface ProvisioningAdministration {
  principals: Pick<Principals, 'mintAgent' | 'rotate'>;
  links: Pick<Links, 'invite' | 'reset'>;
  directory: PrincipalDirectory;
  clients: Clients;
  close(): Promise<void>;
}

/** What the audit has for an address. */
export const ON_THE_HOST = { ip: 'cli', isGone: () => false };

/**
 * Opens the store that the environment names, also while the program runs.
 *
 * @param warn gets sentences about what went on although something is not as it should be
 * @param create whether a store that is not there is made
 * @throws ConfigurationError, StoreUnavailable
 */
export async function openProvisioning(
  warn: (message: string) => void,
  { create }: { create: boolean },
): Promise<ProvisioningAdministration> {
  const { databaseUri, publicUrl } = idpSchema.properties;
  const { values, production } = resolveOptions(
    defineOptions({ databaseUri, publicUrl, port: idpServerSchema.properties.port }),
    { program: 'idp', given: {}, env: undefined, random: systemRandom },
  );
  const store = await (create ? openStore : openExistingStore)(values.databaseUri);
  const [clock, random] = [systemClock, systemRandom];
  const audit = createAudit(store, {
    clock,
    random,
    log: { error: () => warn('An audit record was lost.') },
  });
  const people = principalCollection(store);
  const base = values.publicUrl ?? (await createLastKnownAddress(store).recall());
  const deps = {
    audit,
    clock,
    random,
    passwords: createPasswords(random),
    passwordPolicy: createPasswordPolicy(production, warn),
    throttle: { count: async () => undefined, trustOnly: async () => undefined },
    attempt: <T>(_guess: object, evaluate: () => Promise<T | null>) => evaluate(),
    issuer: createPublicUrl(base, values.port).get,
  };
  return {
    principals: createPrincipals(people, deps),
    links: createLinks(people, deps),
    directory: createDirectory(people, deps),
    clients: createClients(clientCollection(store), { ...deps, allowHttp: !production, warn }),
    close: () => store.close(),
  };
}

import { createForeignHashes, foreignHashCollection } from '../auth/foreign-hashes.js';
import { type ImportOptions, type ImportReport, importUsers } from '../auth/import.js';
import { type UserDocument, userCollection, userView } from '../auth/store.js';
import { createUserDirectory } from '../auth/users.js';
import { createGrants } from '../billing/grants.js';
import { createPlans } from '../billing/plans.js';
import { allOf } from '../billing/project.js';
import { subscriptionCollection } from '../billing/store.js';
import { createSummaryOf } from '../billing/summary.js';
import { defineOptions, resolveOptions } from '../config/options.js';
import { systemClock } from '../kernel/clock.js';
import { systemRandom } from '../kernel/secrets.js';
import { createListedAudit } from '../ops/audit.js';
import { createPasswordPolicy } from '../passwords/common.js';
import { createPasswords } from '../passwords/hasher.js';
import { createSettings } from '../settings/service.js';
import { missingFile } from '../storage/existing.js';
import { openExistingStore, openStore } from '../storage/open.js';
import { grantsOn } from './billing.js';
import { saasSchema } from './options.js';
import { createUserApi, type UserApi } from './users.js';

/** Users, for whoever has the machine. The store is all it needs of a configuration. */
export interface UserAdministration extends UserApi {
  import(input: AsyncIterable<Uint8Array>, options: ImportOptions): Promise<ImportReport>;
  close(): Promise<void>;
}

/**
 * Opens the store that the environment names, also while the program runs.
 *
 * @param warn gets sentences about what went on although something is not as it should be
 * @param dryRun whether nothing will change: a store that is not there yet is then an empty one, and is not made
 * @param existing whether the store must be there: what changes users makes none
 * @throws ConfigurationError, StoreUnavailable
 */
export async function openUserAdministration(
  warn: (message: string) => void,
  { dryRun = false, existing = false }: { dryRun?: boolean; existing?: boolean },
): Promise<UserAdministration> {
  const { databaseUri, pastDue, billingPrices } = saasSchema.properties;
  const { values, production } = resolveOptions(defineOptions({ databaseUri, pastDue, billingPrices }), {
    program: 'saas-backend',
    given: {},
    env: undefined,
    random: systemRandom,
  });
  const missing = dryRun ? missingFile(values.databaseUri) : null;
  if (missing !== null) warn(`There is no file ${missing} yet: the import makes it.`);
  const open = existing ? openExistingStore : openStore;
  const store = await open(missing === null ? values.databaseUri : 'sqlite::memory:');
  const [clock, random] = [systemClock, systemRandom];
  const audit = createListedAudit(store, {
    clock,
    random,
    log: { error: () => warn('An audit record was lost.') },
  });
  const subscriptions = subscriptionCollection(store);
  const summaryOf = createSummaryOf({
    all: (userId) => allOf(subscriptions, userId),
    pastDue: values.pastDue,
    clock,
  });
  const settings = createSettings({ store, audit, clock });
  const users = userCollection(store);
  const passwords = createPasswords(random);
  const documents = foreignHashCollection(store);
  const deps = {
    users,
    viewOf: async (user: UserDocument) => userView(user, await summaryOf(user)),
    passwords,
    foreignHashes: createForeignHashes({ documents, users, passwords, clock }),
    passwordPolicy: createPasswordPolicy(production, warn),
    audit,
    siteName: async () => (await settings.current()).siteName,
    clock,
    random,
  };
  const grants = createGrants({ target: grantsOn(users), audit, clock });
  const api = createUserApi({
    users,
    directory: createUserDirectory(deps),
    grants,
    audit,
    // The process of a command has no listeners.
    emit: () => undefined,
    clock,
  });
  const sold = new Set(createPlans(values.billingPrices, warn).configured?.values());
  return {
    ...api,
    import: (input, options) => importUsers(input, options, deps),
    async grant(by, given) {
      const user = await api.grant(by, given);
      if (sold.size > 0 && !sold.has(given.plan)) {
        warn(`BILLING_PRICES sells no plan ${given.plan}. It sells: ${[...sold].join(', ')}.`);
      }
      return user;
    },
    close: store.close,
  };
}

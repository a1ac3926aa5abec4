import { type ImportOptions, type ImportReport, importUsers } from './auth/import.js';
import type { NewUser } from './auth/new-users.js';
import { type UserDocument, userCollection, userView } from './auth/store.js';
import { createUserDirectory } from './auth/users.js';
import { allOf } from './billing/project.js';
import { subscriptionCollection } from './billing/store.js';
import { createSummaryOf } from './billing/summary.js';
import { systemClock } from './kernel/clock.js';
import { defineOptions, resolveOptions } from './kernel/options.js';
import { createPasswords } from './kernel/passwords.js';
import { createPasswordPolicy } from './kernel/passwords-common.js';
import type { User } from './kernel/schemas.js';
import { systemRandom } from './kernel/secrets.js';
import { createListedAudit } from './ops/audit.js';
import { saasSchema } from './saas-options.js';
import { createSettings } from './settings/service.js';
import { missingFile } from './storage/existing.js';
import { openStore } from './storage/open.js';

/** Users, for whoever has the machine. The store is all it needs of a configuration. */
export interface UserAdministration {
  /** @throws VALIDATION_ERROR, WEAK_PASSWORD, EMAIL_TAKEN */
  create(user: NewUser): Promise<User>;
  import(input: AsyncIterable<Uint8Array>, options: ImportOptions): Promise<ImportReport>;
  close(): Promise<void>;
}

/**
 * Opens the store that the environment names, also while the program runs.
 *
 * @param warn gets sentences about what went on although something is not as it should be
 * @param dryRun whether nothing will change: a store that is not there yet is then an empty one, and is not made
 * @throws ConfigurationError, StoreUnavailable
 */
export async function openUserAdministration(
  warn: (message: string) => void,
  { dryRun }: { dryRun: boolean },
): Promise<UserAdministration> {
  const { databaseUri, pastDue } = saasSchema.properties;
  const { values, production } = resolveOptions(defineOptions({ databaseUri, pastDue }), {
    program: 'saas-backend',
    given: {},
    env: undefined,
    random: systemRandom,
  });
  const missing = dryRun ? missingFile(values.databaseUri) : null;
  if (missing !== null) warn(`There is no file ${missing} yet: the import makes it.`);
  const store = await openStore(missing === null ? values.databaseUri : 'sqlite::memory:');
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
  const deps = {
    users: userCollection(store),
    viewOf: async (user: UserDocument) => userView(user, await summaryOf(user)),
    passwords: createPasswords(random),
    passwordPolicy: createPasswordPolicy(production, warn),
    audit,
    siteName: async () => (await settings.current()).siteName,
    clock,
    random,
  };
  return {
    create: createUserDirectory(deps).create,
    import: (input, options) => importUsers(input, options, deps),
    close: store.close,
  };
}

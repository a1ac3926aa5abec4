import { defineOptions, resolveOptions } from '../core/config/options.js';
import { isLoopback } from '../core/config/public-url.js';
import { systemRandom as random } from '../core/kernel/secrets.js';
import { auditActor, createListedAudit } from '../core/ops/audit.js';
import { NO_EFFECT } from '../core/ops/commit.js';
import { createEvents } from '../core/ops/events.js';
import { createCommandContext } from '../core/server/module-context.js';
import type { Store } from '../core/storage/collection.js';
import { missingFile } from '../core/storage/existing.js';
import { collectionNames, inspectStore } from '../core/storage/inspect.js';
import { openExistingStore, openStore } from '../core/storage/open.js';
import { AUTH_EVENTS, type AuthEvents } from './auth/events.js';
import { createUsersModule } from './auth/module.js';
import { userCollection } from './auth/store.js';
import { createCloseAccount } from './auth/users/deletion.js';
import { billingErrors } from './billing/errors.js';
import { createBillingModule } from './billing/module.js';
import { type BillingConfiguration, isLiveKey } from './billing/options.js';
import { createGateway } from './billing/provider/gateway.js';
import { comparePush } from './billing/push.js';
import { billingOwners } from './billing-owners.js';
import { saasSchema, validatePlans } from './options.js';
import { organizationCollections } from './organizations/store.js';
import { createSettingsModule } from './settings/module.js';
import { createHasFactor } from './sign-in-methods.js';
import { createBasicUserApi } from './user-api.js';
import { createWebhookOutbox } from './webhooks/outbox.js';
import { deliveryCollection, endpointCollection } from './webhooks/store.js';

/**
 * The modules of the SaaS backend for the command line: the same as those of the server, without rate limits. They open
 * the store of `DATABASE_URI`, even while the server runs. They run no jobs: the server delivers the events about users that they
 * leave in the outbox of webhooks.
 */

export { OPERATOR_ROLES, type OperatorRole } from '../shared/console-kit/roles.js';

export type UserAdministration = Awaited<ReturnType<typeof openUserAdministration>>;

/** Called with a sentence for each problem that does not end the command. */
type Warn = (message: string) => void;

/**
 * @param dryRun whether nothing may change; a missing database counts as empty and is not created
 * @param existing whether the store must exist
 * @throws ConfigurationError, StoreUnavailable
 */
export async function openUserAdministration(
  warn: Warn,
  { dryRun = false, existing = false }: { dryRun?: boolean; existing?: boolean },
) {
  const { databaseUri, pastDue, billingPrices, billing: plans, userRoles } = saasSchema.properties;
  const options = { databaseUri, pastDue, billingPrices, billing: plans, userRoles };
  const { values, production } = resolve(options);
  const { databaseUri: uri } = values;
  const open = existing ? openExistingStore : openStore;
  const store = await (dryRun ? openForDryRun(uri, warn) : open(uri));
  const { users, billing, close } = createModules(store, { values, production, warn });
  const api = createBasicUserApi({ users, grants: billing.grants });
  // Plans without a price can be granted, too, unless BILLING_PLANS names all of them.
  const pricedPlans = new Set(billing.plans.names ? [] : billing.plans.configured?.values());
  return {
    ...api,
    import: users.import,
    list: users.directory.list,
    setOperatorRole: users.setOperatorRole,
    /** Closes an account at once; the server, which has the configuration for it, deletes it within a minute. */
    delete: (id: string) => close({ id, deletingAt: null }, auditActor()),
    async grant(...[by, given]: Parameters<typeof api.grant>) {
      const user = await api.grant(by, given);
      if (pricedPlans.size > 0 && !pricedPlans.has(given.plan)) {
        warn(`BILLING_PRICES has no plan ${given.plan}. Its plans are: ${[...pricedPlans].join(', ')}.`);
      }
      return user;
    },
    close: store.close,
  };
}

/** Opens a store with users, or an empty one in memory, because opening a store creates what it lacks. */
async function openForDryRun(uri: string, warn: Warn): Promise<Store> {
  await inspectStore(uri);
  if ((await collectionNames(uri)).includes('users')) return openStore(uri);
  const file = missingFile(uri);
  warn(
    file === null
      ? 'The database has no users yet; the import creates what it needs.'
      : `The file ${file} does not exist yet; the import creates it.`,
  );
  return openStore('sqlite::memory:');
}

/** @throws ConfigurationError, StoreUnavailable (also when there is no store) */
export async function openBillingAdministration(warn: Warn) {
  const { databaseUri, paymentSecretKey, paymentApiUrl, billingPrices, pastDue } = saasSchema.properties;
  const { billing: plans } = saasSchema.properties;
  const { values, production } = resolve({
    databaseUri,
    paymentSecretKey,
    paymentApiUrl,
    billingPrices,
    billing: plans,
    pastDue,
  });
  const store = await openExistingStore(values.databaseUri);
  const { billing } = createModules(store, { values, production, warn });
  await billing.loadPrices();
  return { run: billing.resync.run, importCustomers: billing.importCustomers.run, close: store.close };
}

/**
 * The account at the payment provider, as the plans and this product need it. Needs no store.
 * @param given `prefix`: the path of the API; `plans`: those of the code, instead of BILLING_PLANS
 * @throws ConfigurationError; BILLING_NOT_CONFIGURED
 */
export function openProviderSetup({ prefix, plans }: { prefix: string; plans?: unknown }) {
  const { paymentSecretKey, paymentApiUrl, publicUrl, billing, billingPrices } = saasSchema.properties;
  const options = { paymentSecretKey, paymentApiUrl, publicUrl, billing, billingPrices };
  const { values } = resolve(options, plans === undefined ? {} : { billing: plans });
  const { paymentSecretKey: key, publicUrl: base } = values;
  if (key === undefined) throw billingErrors.BILLING_NOT_CONFIGURED();
  const isReachable = base?.startsWith('https://') === true && !isLoopback(new URL(base).hostname);
  const address = base?.replace(/\/$/, '');
  return {
    /** Whether real customers pay with this key. */
    isLive: isLiveKey(key),
    /** Whether the provider can send events; otherwise the endpoint is not compared. */
    isReachable,
    compare: () =>
      comparePush(createGateway(key, values.paymentApiUrl), {
        webhookUrl: isReachable ? `${address}${prefix}/billing/webhook` : undefined,
        returnUrl: isReachable ? address : undefined,
        plans: values,
      }),
    close: async () => undefined,
  };
}

/** Resolves only the given options, because the environment of a command may lack the others. */
const resolve = <T extends Parameters<typeof defineOptions>[0]>(
  options: T,
  given: Record<string, unknown> = {},
) =>
  resolveOptions(
    defineOptions(options),
    { program: 'saas-backend', given, env: undefined, random },
    validatePlans,
  );

interface CommandOptions {
  values: Omit<BillingConfiguration, 'billingReturnUrlRelative'> & { userRoles?: string[] | undefined };
  production: boolean;
  warn: Warn;
}

function createModules(store: Store, { values, production, warn }: CommandOptions) {
  const context = createCommandContext(store, { production, warn, createAudit: createListedAudit });
  const documents = userCollection(store);
  const settings = createSettingsModule(context, { operator: 'cli' });
  const billing = createBillingModule(context, {
    config: { ...values, billingReturnUrlRelative: '/' },
    owners: billingOwners(documents, organizationCollections(store).organizations),
    // The server processes the events of the provider, because a command sends no mail.
    replayEvents: false,
    outbox: { mail: () => NO_EFFECT },
    event: async () => NO_EFFECT,
    publicUrl: () => '',
  });
  const outbox = createWebhookOutbox({
    endpoints: endpointCollection(store),
    deliveries: deliveryCollection(store),
    wake: () => undefined,
    clock: context.clock,
  });
  const events = createEvents<AuthEvents>({ ...context, names: AUTH_EVENTS, outbox });
  const users = createUsersModule(context, {
    users: documents,
    summaryOf: billing.summaryOf,
    siteName: settings.siteName,
    profileMark: () => ({}),
    profileChanged: NO_EFFECT,
    customers: billing.customers,
    hasFactor: createHasFactor(store),
    event: events.event,
    userRoles: values.userRoles,
  });
  return { users, billing, close: createCloseAccount({ ...context, users: documents, event: events.event }) };
}

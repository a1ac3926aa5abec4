import { userCollection } from '../auth/store.js';
import { createForget, createForgetGone } from '../billing/forget.js';
import { createGateway } from '../billing/gateway.js';
import { createPlans } from '../billing/plans.js';
import { createProjector } from '../billing/project.js';
import { createRefresh } from '../billing/refresh.js';
import { createResync, type Resync } from '../billing/resync.js';
import {
  customerCollection,
  paymentCollection,
  subscriptionCollection,
  webhookEventCollection,
} from '../billing/store.js';
import { createSubscriptionWriter } from '../billing/write.js';
import { defineOptions, resolveOptions } from '../config/options.js';
import { systemClock as clock } from '../kernel/clock.js';
import { systemRandom as random } from '../kernel/secrets.js';
import { openExistingStore } from '../storage/open.js';
import { projectionOn } from './billing.js';
import { saasSchema } from './options.js';

/** Billing, for whoever has the machine. What its events tell of is left to the program that serves. */
export interface BillingAdministration extends Resync {
  close(): Promise<void>;
}

/**
 * Opens the store that the environment names, also while the program runs. Where there is none, none is made.
 *
 * @param warn gets sentences about what went on although something is not as it should be
 * @throws ConfigurationError, StoreUnavailable
 */
export async function openBillingAdministration(
  warn: (message: string) => void,
): Promise<BillingAdministration> {
  const { databaseUri, paymentSecretKey, paymentApiUrl, billingPrices, pastDue } = saasSchema.properties;
  const { values } = resolveOptions(
    defineOptions({ databaseUri, paymentSecretKey, paymentApiUrl, billingPrices, pastDue }),
    { program: 'saas-backend', given: {}, env: undefined, random },
  );
  const store = await openExistingStore(values.databaseUri);
  const customers = customerCollection(store);
  const subscriptions = subscriptionCollection(store);
  const users = userCollection(store);
  const projector = createProjector(subscriptions, projectionOn(users));
  const forget = createForget({
    customers,
    subscriptions,
    payments: paymentCollection(store),
    events: webhookEventCollection(store),
    projector,
  });
  const plans = createPlans(values.billingPrices, (priceId) =>
    warn(`Nobody has said what plan ${priceId} is.`),
  );
  const key = values.paymentSecretKey;
  const gateway = key === undefined ? undefined : createGateway(key, values.paymentApiUrl);
  const refresh =
    gateway &&
    createRefresh({
      gateway,
      subscriptions,
      writer: createSubscriptionWriter(subscriptions, clock),
      plans,
      projector,
      forgetGone: createForgetGone(forget, async (id) => (await users.findOne({ id })) !== null),
      emit: () => undefined,
      pastDue: values.pastDue,
      clock,
    });
  const { run } = createResync({ customers, gateway, refresh });
  return { run, close: store.close };
}

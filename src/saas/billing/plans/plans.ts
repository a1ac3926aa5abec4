import { configuredPrices, keyedPrices, type PlansSource } from '../options.js';
import { type CheckoutOptions, FREE_PLAN, isQuota, type PlanConfiguration, type Quota } from './options.js';

/** Maps prices of the payment provider to plans of this product, and plans to what they include. */

/** The plan of a price that is neither configured nor set at the provider. It grants no access. */
export const UNKNOWN_PLAN = 'unknown';

/** The family of the plans of which a user has one at a time. */
export const MAIN_FAMILY = 'plans';

/** What identifies the plan of a price. */
export interface PlanSource {
  priceId?: string | undefined;
  lookupKey?: string | undefined;
  /** `metadata.plan` of the subscription or of its price. */
  metadataPlan?: string | undefined;
}

export type Plans = ReturnType<typeof createPlans>;

/** The names that code may refer to. */
export type KnownPlans = Readonly<ReturnType<typeof knownPlans>>;

export function knownPlans(source: PlansSource) {
  const { plans = {} } = source.billing ?? {};
  const names = new Set([...Object.keys(plans), ...(configuredPrices(source)?.values() ?? [])]);
  names.delete(FREE_PLAN);
  return {
    /** Every plan that can give access; undefined if the option `billing` does not define the plans. */
    names: source.billing && names,
    features: new Set(Object.values(plans).flatMap(({ features = [] }) => features)),
    limits: new Set(Object.values(plans).flatMap(({ limits = {} }) => Object.keys(limits))),
  };
}

export interface Benefits {
  /** In alphabetical order. */
  features: string[];
  /** Every limit of the configuration: the highest of the given plans, 0 if none has it, `Infinity` for unlimited. */
  limits: Record<string, number>;
}

/**
 * @param onUnknown called for each purchased price that has no plan
 */
export function createPlans(source: PlansSource, onUnknown: (priceId: string) => void) {
  const configured = configuredPrices(source);
  const planOfKey = new Map(keyedPrices(source).map(({ plan, price }) => [price.lookupKey, plan]));
  /** The newest price of each lookup key. */
  const priceOfKey = new Map<string, string>();
  const configurations = new Map(Object.entries(source.billing?.plans ?? {}));
  const reported = new Set<string>();
  /** The configured plan of a price or of its lookup key, else the key itself, else its metadata. */
  const planOf = ({ priceId, lookupKey, metadataPlan }: PlanSource): string =>
    configured?.get(priceId ?? '') ??
    planOfKey.get(lookupKey ?? '') ??
    lookupKey ??
    metadataPlan ??
    UNKNOWN_PLAN;
  /** What the option `billing` says about a plan. Absent for `unknown` and for plans that only the provider knows. */
  const configOf = (plan: string): PlanConfiguration | undefined => configurations.get(plan);
  const isIndependent = (plan: string): boolean => configOf(plan)?.independent === true;
  const known = knownPlans(source);
  const ownPlans = new Set([...(known.names ?? []), ...(configured?.values() ?? [])]);
  /**
   * Of the plans of a family, a user has one at a time. An independent plan is a family of its own. Undefined for what is no plan of
   * this product, such as a price that the seller agreed upon with one customer.
   */
  const familyOf = (plan: string): string | undefined => {
    if (isIndependent(plan)) return plan;
    return configured === undefined || ownPlans.has(plan) ? MAIN_FAMILY : undefined;
  };
  return {
    /** Price to plan; undefined if every price of the provider is for sale. Grows with the prices of lookup keys. */
    configured,
    /** The lookup keys of the configuration. */
    lookupKeys: [...planOfKey.keys()],
    /** Remembers the plan of a price by its lookup key, if the configuration has that key. */
    learn(priceId: string | undefined, lookupKey: string | undefined): void {
      const plan = planOfKey.get(lookupKey ?? '');
      if (plan !== undefined && priceId !== undefined && !configured?.has(priceId))
        configured?.set(priceId, plan);
    },
    /** The price that has a lookup key now. */
    sell: (priceId: string, lookupKey: string): void => void priceOfKey.set(lookupKey, priceId),
    /** The ID of a price that is named by its ID or its lookup key. */
    priceIdOf: (named: string): string => priceOfKey.get(named) ?? named,
    ...known,
    configOf,
    /** The name of a plan, as users see it. */
    nameOf: (plan: string): string => configOf(plan)?.name ?? plan,
    /** Whether users can have the plan together with another one, as an add-on. */
    isIndependent,
    familyOf,
    /** The family of what a price buys; of a price that is not for sale undefined. */
    familyOfPrice: (priceId: string): string | undefined =>
      familyOf(configured?.get(priceId) ?? UNKNOWN_PLAN),
    /** Whether a one-time purchase gives access to any plan. */
    hasPurchases: [...configurations.values()].some(({ purchase }) => purchase === true),
    /** Whether a one-time purchase gives access to the plan. */
    isPurchase: (plan: string): boolean => configOf(plan)?.purchase === true,
    /** The options of the checkout page for a price, including the bounds of the quantity; empty if none are set. */
    checkoutOf: (priceId: string): CheckoutOptions =>
      configOf(configured?.get(priceId) ?? UNKNOWN_PLAN)?.checkout ?? {},
    /** How the quantity of a price and the members of an organization depend. */
    seatsOf: (priceId: string) => configOf(configured?.get(priceId) ?? UNKNOWN_PLAN)?.seats,
    quotaOf: (plan: string, name: string): Quota | undefined => quotaIn(configOf(plan), name),
    /** The amounts of the limits of a plan; null for unlimited. */
    limitsOf: (plan: string): Record<string, number | null> =>
      Object.fromEntries(
        Object.keys(configOf(plan)?.limits ?? {}).map((name) => [
          name,
          quotaIn(configOf(plan), name)?.amount ?? null,
        ]),
      ),
    /** What a user with these plans has. */
    benefitsOf(plans: Iterable<string>): Benefits {
      const held = [...plans].flatMap((plan) => configOf(plan) ?? []);
      const highest = (name: string) => Math.max(0, ...held.map((plan) => limitOf(plan, name)));
      return {
        features: [...new Set(held.flatMap(({ features = [] }) => features))].sort(),
        limits: Object.fromEntries([...known.limits].map((name) => [name, highest(name)])),
      };
    },
    planOf,
    /** Whether users may buy a price. */
    isForSale: (priceId: string): boolean => configured === undefined || configured.has(priceId),
    /** The same for a price that was bought: reports each price without a plan once. */
    planOfPurchase(source: PlanSource): string {
      const plan = planOf(source);
      const { priceId } = source;
      if (plan === UNKNOWN_PLAN && priceId !== undefined && !reported.has(priceId)) {
        reported.add(priceId);
        onUnknown(priceId);
      }
      return plan;
    },
  };
}

/** A limit with its period; undefined for one that the plan does not have. */
function quotaIn({ limits = {} }: PlanConfiguration = {}, name: string): Quota | undefined {
  if (!Object.hasOwn(limits, name)) return undefined;
  const limit = limits[name];
  return isQuota(limit) ? limit : { amount: limit ?? null };
}

/** A limit that is not set gives nothing, one that is null has no bound. */
function limitOf(plan: PlanConfiguration, name: string): number {
  const quota = quotaIn(plan, name);
  return quota ? (quota.amount ?? Number.POSITIVE_INFINITY) : 0;
}

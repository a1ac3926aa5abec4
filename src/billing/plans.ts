/** Maps prices of the payment provider to plans of this product. */

/** The plan of a price that is neither configured nor set at the provider. It grants no access. */
export const UNKNOWN_PLAN = 'unknown';

/** What identifies the plan of a price. */
export interface PlanSource {
  priceId?: string;
  lookupKey?: string;
  /** `metadata.plan` of the subscription or of its price. */
  metadataPlan?: string;
}

export interface Plans {
  /** The configured plan of a price, else its lookup key, else its metadata. */
  planOf(source: PlanSource): string;
  /** The same for a price that was bought: reports each price without a plan once. */
  planOfPurchase(source: PlanSource): string;
  /** Whether users may buy a price. */
  isForSale(priceId: string): boolean;
  /** Price to plan; undefined if every price of the provider is for sale. */
  readonly configured: ReadonlyMap<string, string> | undefined;
}

/**
 * @param pairs `price=plan`, as in BILLING_PRICES
 * @param onUnknown called for each purchased price that has no plan
 */
export function createPlans(
  pairs: readonly string[] | undefined,
  onUnknown: (priceId: string) => void,
): Plans {
  const configured = pairs && new Map(pairs.map(splitPair));
  const reported = new Set<string>();
  const planOf = ({ priceId, lookupKey, metadataPlan }: PlanSource): string =>
    configured?.get(priceId ?? '') ?? lookupKey ?? metadataPlan ?? UNKNOWN_PLAN;
  return {
    configured,
    planOf,
    isForSale: (priceId) => configured === undefined || configured.has(priceId),
    planOfPurchase(source) {
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

function splitPair(pair: string): [priceId: string, plan: string] {
  const equals = pair.indexOf('=');
  return [pair.slice(0, equals), pair.slice(equals + 1)];
}

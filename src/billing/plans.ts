/** Prices are the provider's, plans are ours. */

/** Nobody has said what the price is of. It entitles to nothing. */
export const UNKNOWN_PLAN = 'unknown';

/** What is known of what somebody bought. */
export interface Bought {
  priceId?: string;
  lookupKey?: string;
  /** `metadata.plan` of the subscription or of its price. */
  metadataPlan?: string;
}

export interface Plans {
  /** The plan of what somebody bought: as configured, else as the provider's own words have it. */
  of(bought: Bought): string;
  /** The same of what may be bought: nobody need be warned yet. */
  named(offer: Bought): string;
  /** Whether a price may be bought. */
  allows(priceId: string): boolean;
  /** What is configured to be sold; undefined where everything the provider has is. */
  readonly configured: ReadonlyMap<string, string> | undefined;
}

/** @param pairs `price=plan`, as in BILLING_PRICES */
export function createPlans(pairs: readonly string[] | undefined, warn: (priceId: string) => void): Plans {
  const configured = pairs && new Map(pairs.map(splitPair));
  const warned = new Set<string>();
  const named = ({ priceId, lookupKey, metadataPlan }: Bought): string =>
    configured?.get(priceId ?? '') ?? lookupKey ?? metadataPlan ?? UNKNOWN_PLAN;
  return {
    configured,
    named,
    allows: (priceId) => configured === undefined || configured.has(priceId),
    of(bought) {
      const plan = named(bought);
      const { priceId } = bought;
      if (plan === UNKNOWN_PLAN && priceId !== undefined && !warned.has(priceId)) {
        warned.add(priceId);
        warn(priceId);
      }
      return plan;
    },
  };
}

function splitPair(pair: string): [priceId: string, plan: string] {
  const equals = pair.indexOf('=');
  return [pair.slice(0, equals), pair.slice(equals + 1)];
}

import type { Gateway } from './gateway.js';
import type { Plans } from './plans.js';
import { readSnapshot, type Snapshot } from './snapshot.js';

/** A subscription as the provider has it. */
export interface Fetched {
  snapshot: Snapshot;
  /** Everything that the provider told of before is part of it. Epoch milliseconds of the provider's clock. */
  asOf: number;
}

/** Asks the provider about a subscription. Null where it cannot be asked or does not know. */
export type FetchSubscription = (id: string) => Promise<Fetched | null>;

export interface FetchLog {
  warn(entry: object, words: string): void;
}

/** @param gateway absent while no key is configured */
export function createFetch(gateway: Gateway | undefined, plans: Plans, log: FetchLog): FetchSubscription {
  return async (id) => {
    if (!gateway) return null;
    try {
      const found = await gateway.subscription(id);
      if (!found) throw new Error('The provider has no such subscription.');
      return { snapshot: readSnapshot(found.object, plans), asOf: found.asOf };
    } catch (err) {
      // An event that cannot be settled now is settled as well as can be, and asked about again in the background.
      log.warn({ err, subscription: id }, 'the payment provider could not be queried for a subscription');
      return null;
    }
  };
}

import { nullIfTaken, type Store } from '../storage/collection.js';

/**
 * Where a provider in development was last reached. The commands on its host print links that lead there, and know
 * neither the port that it was given by a flag nor the application that it is part of.
 */
export interface LastAddress {
  /** @param url the issuer */
  remember(url: string): Promise<void>;
  recall(): Promise<string | undefined>;
}

interface AddressDocument {
  id: 'issuer';
  url: string;
}

export function createLastKnownAddress(store: Store): LastAddress {
  const addresses = store.collection<AddressDocument>('addresses');
  const id = 'issuer';
  return {
    async remember(url) {
      // Of two that start at once either is one that was reached last.
      if (!(await addresses.updateOne({ id }, { set: { url } }))) {
        await addresses.insert({ id, url }).catch(nullIfTaken);
      }
    },
    recall: async () => (await addresses.findOne({ id }))?.url,
  };
}

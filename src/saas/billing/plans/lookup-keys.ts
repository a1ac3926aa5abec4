import { allOf } from '../../../core/storage/pages.js';
import type { BillingContext } from '../context.js';
import { asText, idOf, type Json } from '../provider/json.js';
import type { KeyedPriceDocument } from '../store.js';

export type LookupKeys = ReturnType<typeof createLookupKeys>;

export function createLookupKeys(context: BillingContext) {
  const { keyedPrices, plans, gateway, backgroundTasks, clock, log } = context;
  const { lookupKeys } = plans;
  const stored = new Map<string, string>();

  const use = ({ id, lookupKey }: Pick<KeyedPriceDocument, 'id' | 'lookupKey'>): void => {
    plans.learn(id, lookupKey);
    plans.sell(id, lookupKey);
    stored.set(lookupKey, id);
  };

  /** Stores and uses the active prices that have one of the keys now. */
  const remember = async (prices: readonly Json[]): Promise<void> => {
    for (const price of prices) {
      const [id, lookupKey] = [idOf(price), asText(price['lookup_key'])];
      if (id === undefined || lookupKey === undefined || !lookupKeys.includes(lookupKey)) continue;
      if (stored.get(lookupKey) === id) continue;
      const at = clock.now();
      if (!(await keyedPrices.changeOne({ id }, { set: { lookupKey, at } })))
        await keyedPrices.insertMany([{ id, lookupKey, at }]);
      use({ id, lookupKey });
    }
  };

  const ask = async (): Promise<void> => {
    if (!gateway) return;
    try {
      await remember(await gateway.pricesOfKeys(lookupKeys));
    } catch (err) {
      log.warn({ err }, 'the prices of the plans could not be read from the payment provider');
    }
    const absent = lookupKeys.filter((key) => !stored.has(key));
    if (absent.length > 0)
      log.warn(
        { lookupKeys: absent },
        'the payment provider has no prices with these lookup keys: run saas-backend billing push',
      );
  };

  return {
    remember,

    /** Before anything else is done with plans. Waits for the provider only if a key was never seen before. */
    async load(): Promise<void> {
      if (lookupKeys.length === 0) return;
      const where = { lookupKey: { in: lookupKeys } };
      for (const document of await allOf(keyedPrices, { where, sort: 'at' })) use(document);
      if (lookupKeys.every((key) => stored.has(key))) backgroundTasks.run('prices of lookup keys', ask);
      else await ask();
    },
  };
}

import type { Test } from 'tap';
import type { Store } from '../../src/core/storage/collection.js';
import { openStore } from '../../src/core/storage/open.js';

const PROCESSES = 4;

/** A service as each of several processes on one database has it, with a connection of its own. */
export async function processesOn<Service>(t: Test, uri: string, serviceOn: (store: Store) => Service) {
  const stores = await Promise.all(Array.from({ length: PROCESSES }, () => openStore(uri)));
  t.teardown(() => Promise.all(stores.map((store) => store.close())));
  const services = stores.map(serviceOn);
  /** Runs one call per item, spread over the processes. */
  const spread = <Item, T>(items: Item[], call: (service: Service, item: Item) => Promise<T>) =>
    Promise.all(items.map((item, index) => call(services[index % PROCESSES] as Service, item)));
  return { store: stores[0] as Store, services, service: services[0] as Service, spread };
}

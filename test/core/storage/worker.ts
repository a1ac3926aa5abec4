/** Another process on the same store, with its task as arguments; it starts at the first message. */
import { once } from 'node:events';
import { openStore } from '../../../src/core/storage/open.js';
import { thing, things } from './kit.js';

const [uri, task] = process.argv.slice(2) as [string, string];
const store = await openStore(uri);
const all = things(store);
await store.ready();
process.send?.('ready');
process.once('disconnect', () => process.exit());

const AT_ONCE = 10;

const tasks: Record<string, () => Promise<void>> = {
  /** Updates each document once, conditionally, and counts every attempt. */
  async race() {
    await once(process, 'message');
    const { items } = await all.page({ sort: 'id', limit: 1000 });
    const take = async ({ id }: { id: string }) => {
      const [taken, isOpened] = await Promise.all([
        all.updateOne({ id, group: null }, { set: { group: `p${process.pid}` } }),
        all.changeOne({ id, open: null }, { set: { open: true } }),
        all.updateOne({ id }, { inc: { count: 1 } }),
        all.changeOne({ id }, { inc: { count: 1 } }),
      ]);
      return { id, isTaken: taken !== null, isOpened };
    };
    const results: Awaited<ReturnType<typeof take>>[] = [];
    // Few at a time: hundreds of concurrent calls on a busy machine exceed the store's time limit.
    for (let first = 0; first < items.length; first += AT_ONCE)
      results.push(...(await Promise.all(items.slice(first, first + AT_ONCE).map(take))));
    const idsOf = (some: typeof results) => some.map(({ id }) => id);
    process.send?.({
      won: idsOf(results.filter(({ isTaken }) => isTaken)),
      opened: idsOf(results.filter(({ isOpened }) => isOpened)),
      lost: results.filter(({ isTaken }) => !isTaken).length,
    });
    await store.close();
  },

  /** Writes until it is killed, and reports each acknowledged write. */
  async write() {
    const lane = async (number: number): Promise<void> => {
      for (let i = 0; ; i++) {
        const id = `${process.pid}-${number}-${i}`;
        await all.insert(thing(id, { count: 0 }));
        await all.changeOne({ id, count: 0 }, { inc: { count: 1 } });
        process.send?.(id);
      }
    };
    await Promise.all(Array.from({ length: 16 }, (_, number) => lane(number)));
  },

  /** Commits two writes at a time until it is killed, and reports each acknowledged commit. */
  async commits() {
    const lane = async (number: number): Promise<void> => {
      const group = `${process.pid}-${number}`;
      await all.insert(thing(group, { count: 0, open: true }));
      for (let count = 0; ; count++) {
        const id = `${group}-${count}`;
        const add = all.changing({ id: group, count }, { inc: { count: 1 } });
        const { committed } = await store.commit([add, all.inserting(thing(id, { group }))]);
        if (!committed) throw new Error(`${id} was not made`);
        process.send?.(id);
      }
    };
    await Promise.all(Array.from({ length: 16 }, (_, number) => lane(number)));
  },
};

await tasks[task]?.();

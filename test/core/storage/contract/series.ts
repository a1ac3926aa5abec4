/** `writeAll` makes writes of several collections, all or none of them if the engine is atomic. */
import { once } from 'node:events';
import type { Test } from 'tap';
import {
  RefusedDocument,
  RefusedSelector,
  type Store,
  StoreUnavailable,
} from '../../../../src/core/storage/collection.js';
import { openStore } from '../../../../src/core/storage/open.js';
import { begin, type Fresh, startWorker, type Thing, thing, things } from '../kit.js';

const notes = (store: Store) => store.collection<{ id: string; at?: number }>('notes', { fields: ['at'] });

const WRITES = 100;

/** This part of the contract. */
export function series(t: Test, fresh: Fresh): void {
  t.test('writes are made in their order, up to the first that cannot be made', async (t) => {
    const { store, all } = await begin(t, fresh);
    const others = notes(store);
    await all.insert(thing('1', { count: 0 }));
    await all.insert(thing('2', { email: 'taken@example.com' }));
    const add = (count: number) => all.changing({ id: '1', count }, { inc: { count: 1 } });
    t.equal(await store.writeAll([add(0), others.inserting({ id: 'a' })]), true, 'in a new collection');
    t.equal(
      await store.writeAll([others.inserting({ id: 'b' }), add(1), add(2)]),
      true,
      'one document twice',
    );
    t.equal(await store.writeAll([add(3)]), true);
    t.strictSame(await all.findOne({ id: '1' }), thing('1', { count: 4 }));
    t.equal(await others.count(), 2);

    const failing = {
      'a change that matches no document': all.changing({ id: '2', count: 9 }, { set: { at: 1 } }),
      'an insertion whose ID is taken': others.inserting({ id: 'a', at: 1 }),
      'an insertion whose address is taken': all.inserting(thing('3', { email: 'taken@example.com' })),
      'a change to an address that is taken': all.changing(
        { id: '1' },
        { set: { email: 'taken@example.com' } },
      ),
    };
    for (const [name, write] of Object.entries(failing)) {
      const { count = 0 } = (await all.findOne({ id: '1' })) as Thing;
      const id = `after ${name}`;
      t.equal(await store.writeAll([write, add(count), others.inserting({ id })]), false, `${name}, first`);
      t.equal((await all.findOne({ id: '1' }))?.count, count, `nothing follows ${name}`);
      t.equal(await store.writeAll([add(count), write, others.inserting({ id })]), false, name);
      const expected = store.isAtomic ? count : count + 1;
      t.equal((await all.findOne({ id: '1' }))?.count, expected, `what comes before ${name}`);
      t.equal(await others.findOne({ id }), null);
    }
    t.strictSame(await others.findOne({ id: 'a' }), { id: 'a' });
  });

  t.test('a document that was read is replaced if it is still the same', async (t) => {
    const { store, all } = await begin(t, fresh);
    const before = thing('1', { count: 1, at: 5, group: 'a' });
    await all.insert(before);
    await all.insert(thing('2', { email: 'taken@example.com' }));
    const { group: _, ...rest } = before;
    const after = { ...rest, count: 2, at: 6 };
    const replacing = (next: Thing) => store.writeAll([all.replacing({ id: '1', count: 1 }, before, next)]);
    t.equal(await replacing({ ...after, email: 'taken@example.com' }), false, 'an address that is taken');
    t.strictSame(await all.findOne({ id: '1' }), before);
    t.equal(await replacing(after), true);
    t.strictSame(await all.findOne({ at: 6 }), after, 'found by its new value');
    t.equal(await all.findOne({ group: 'a' }), null, 'not by one that is gone');
    t.equal(await replacing({ ...after, at: 7 }), false, 'it was changed since');
    t.strictSame(await all.findOne({ id: '1' }), after);
    t.throws(() => all.replacing({ id: '1' }, before, { ...after, id: '2' }), RefusedDocument);
    t.throws(() => all.replacing({ id: '1' }, before, { ...after, at: undefined } as never), RefusedDocument);
    t.throws(() => all.replacing({}, before, after), RefusedSelector);
  });

  t.test('a series that fails leaves other calls of the same moment as they are', async (t) => {
    const { store, all } = await begin(t, fresh);
    await all.insert(thing('1', { count: Number.MAX_SAFE_INTEGER }));
    const full = all.changing({ id: '1' }, { inc: { count: 1 } });
    const [first, taken, refused, , last] = await Promise.allSettled([
      store.writeAll([all.inserting(thing('2')), all.inserting(thing('3'))]),
      store.writeAll([all.inserting(thing('4')), all.inserting(thing('2', { email: 'x@example.com' }))]),
      store.writeAll([all.inserting(thing('5')), full]),
      all.insert(thing('6')),
      store.writeAll([all.changing({ id: '2' }, { set: { at: 1 } }), all.inserting(thing('7'))]),
    ]);
    t.match(first, { value: true });
    t.match(refused, { reason: RefusedDocument });
    const isLate = last.status === 'fulfilled' && last.value === true;
    // On MongoDB, the second and the last series may run before the first one has inserted the document.
    if (store.isAtomic) t.match([taken, last], [{ value: false }, { value: true }]);
    const { items } = await all.page({ sort: 'id', limit: 10 });
    const ids = items.map(({ id }) => id);
    for (const id of ['1', '3', '6', ...(isLate ? ['7'] : [])]) t.ok(ids.includes(id), id);
    if (store.isAtomic) t.strictSame(ids, ['1', '2', '3', '6', '7']);
  });

  t.test('of fifty concurrent series with the same condition one is made', async (t) => {
    const { store, all } = await begin(t, fresh);
    await all.insert(thing('1', { group: null }));
    const made = await Promise.all(
      Array.from({ length: 50 }, (_, i) =>
        store.writeAll([
          all.changing({ id: '1', group: null }, { set: { group: `w${i}` } }),
          all.inserting(thing(`w${i}`)),
        ]),
      ),
    );
    const winner = `w${made.indexOf(true)}`;
    t.equal(made.filter((isMade) => isMade).length, 1);
    t.equal((await all.findOne({ id: '1' }))?.group, winner);
    t.ok(await all.findOne({ id: winner }));
    t.equal(await all.count(), 2, 'the others insert nothing');
  });

  t.test('invalid writes are refused before anything is written', async (t) => {
    const { store, all } = await begin(t, fresh);
    t.throws(() => all.inserting({ id: '1' } as Thing), RefusedDocument);
    t.throws(() => all.changing({ id: '1' }, { set: { id: '2' } } as never), RefusedDocument);
    t.throws(() => all.changing({} as never, { set: { at: 1 } }), RefusedSelector);
    t.throws(() => all.changing({ unknown: '1' } as never, { set: { at: 1 } }), RefusedSelector);
    t.equal(await all.count(), 0);
    const write = all.inserting(thing('1'));
    const last = store.writeAll([write]);
    await store.close();
    t.equal(await last, true, 'a call before the end of the store is made');
    await t.rejects(store.writeAll([write]), StoreUnavailable);
  });

  t.test(
    'kill -9 loses no acknowledged series, and leaves none in part if the engine is atomic',
    async (t) => {
      const uri = fresh(t);
      const acknowledged = new Set<string>();
      const child = await startWorker(t, uri, 'series');
      child.on('message', (id: string) => {
        if (acknowledged.add(id).size >= WRITES) child.kill('SIGKILL');
      });
      const [, signal] = await once(child, 'exit');
      t.equal(signal, 'SIGKILL');
      const store = await openStore(uri);
      t.teardown(() => store.close());
      const all = things(store);
      for (const id of acknowledged) t.ok(await all.findOne({ id }), id);
      const { items: lanes } = await all.page({ where: { open: true }, sort: 'id', limit: 100 });
      t.ok(lanes.length > 1);
      for (const { id, count = 0 } of lanes) {
        const torn = count - (await all.count({ group: id }));
        t.ok(torn === 0 || (torn === 1 && !store.isAtomic), `${id}: ${torn} of ${count} are torn`);
      }
    },
  );
}

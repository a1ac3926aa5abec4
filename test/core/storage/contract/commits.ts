/** `commit` makes writes of several collections, all or none of them. */
import { once } from 'node:events';
import type { Test } from 'tap';
import {
  RefusedDocument,
  RefusedSelector,
  type Store,
  StoreUnavailable,
  UniqueViolation,
  type Write,
} from '../../../../src/core/storage/collection.js';
import { openStore } from '../../../../src/core/storage/open.js';
import { begin, type Fresh, startWorker, type Thing, thing, things } from '../kit.js';

const notes = (store: Store) => store.collection<{ id: string; at?: number }>('notes', { numbers: ['at'] });

const COMMITS = 100;

/** This part of the contract. */
export function commits(t: Test, fresh: Fresh): void {
  t.test('a commit makes all writes', async (t) => {
    const { store, all } = await begin(t, fresh);
    const others = notes(store);
    await all.insert(thing('1', { count: 0 }));
    await all.insert(thing('2'));
    const { committed } = await store.commit([
      all.changing({ id: '1', count: 0 }, { set: { at: 5 }, inc: { count: 2 } }),
      others.inserting({ id: 'a', at: 1 }),
      all.deleting({ email: '2@example.com' }),
      others.ensuring({ id: 'b' }),
    ]);
    t.equal(committed, true);
    t.strictSame(await all.findOne({ id: '1' }), thing('1', { count: 2, at: 5 }));
    t.equal(await all.findOne({ id: '2' }), null);
    t.strictSame(await others.findOne({ id: 'a' }), { id: 'a', at: 1 });
    t.strictSame(await others.findOne({ id: 'b' }), { id: 'b' });
    t.strictSame(await store.commit([all.changing({ id: '1' }, { unset: ['at'] })]), { committed: true });
    t.strictSame(await store.commit([]), { committed: true }, 'an empty set');
    const many = Array.from({ length: 30 }, (_, i) => others.inserting({ id: `many-${i}`, at: i }));
    t.strictSame(await store.commit(many), { committed: true });
    t.equal(await others.count(), 32);
  });

  t.test('an ensured document stays as it is if its ID or a unique value exists', async (t) => {
    const { store, all } = await begin(t, fresh);
    await all.insert(thing('1', { count: 1 }));
    const { committed } = await store.commit([
      all.ensuring(thing('1', { email: 'other@example.com', count: 2 })),
      all.ensuring(thing('3', { email: '1@example.com' })),
      all.ensuring(thing('4')),
    ]);
    t.equal(committed, true);
    const { items } = await all.page({ sort: 'id', limit: 10 });
    t.strictSame(items, [thing('1', { count: 1 }), thing('4')]);
  });

  t.test('nothing is written if one write cannot be made, wherever it stands', async (t) => {
    const { store, all } = await begin(t, fresh);
    const others = notes(store);
    await all.insert(thing('1', { count: 0 }));
    await all.insert(thing('2', { email: 'taken@example.com' }));
    await others.insert({ id: 'a' });
    const unmet = {
      'a change that matches no document': all.changing({ id: '2', count: 9 }, { set: { at: 1 } }),
      'a deletion that matches no document': others.deleting({ id: 'x' }),
    };
    const taken = {
      id: others.inserting({ id: 'a', at: 1 }),
      email: all.inserting(thing('3', { email: 'taken@example.com' })),
    };
    const around = (write: Write, place: number): Write[] =>
      [all.changing({ id: '1' }, { inc: { count: 1 } }), others.inserting({ id: 'b' })].toSpliced(
        place,
        0,
        write,
      );
    for (const place of [0, 1, 2]) {
      for (const [name, write] of Object.entries(unmet)) {
        const outcome = await store.commit(around(write, place));
        t.equal(!outcome.committed && outcome.unmet, write, `${name}, at ${place}`);
      }
      for (const [field, write] of Object.entries(taken))
        await t.rejects(
          store.commit(around(write, place)),
          { name: 'UniqueViolation', field },
          `${field}, at ${place}`,
        );
    }
    const moving = all.changing({ id: '1' }, { set: { email: 'taken@example.com' } });
    await t.rejects(store.commit([others.inserting({ id: 'b' }), moving]), UniqueViolation);
    const first = all.changing({ id: 'x' }, { set: { at: 1 } });
    const outcome = await store.commit([first, others.deleting({ id: 'x' })]);
    t.equal(!outcome.committed && outcome.unmet, first, 'of two, the first is named');
    t.strictSame(await all.findOne({ id: '1' }), thing('1', { count: 0 }));
    t.strictSame((await others.page({ sort: 'id', limit: 10 })).items, [{ id: 'a' }]);
  });

  t.test('a unique value is free for the same set of writes', async (t) => {
    const { store, all } = await begin(t, fresh);
    await all.insert(thing('1'));
    const twice = [all.inserting(thing('2')), all.inserting(thing('3', { email: '2@example.com' }))];
    await t.rejects(store.commit(twice), { name: 'UniqueViolation', field: 'email' });
    t.equal(await all.count(), 1);
    const { committed } = await store.commit([
      all.changing({ id: '1' }, { set: { email: 'new@example.com' } }),
      all.inserting(thing('2')),
    ]);
    t.equal(committed, true);
  });

  t.test('a commit that fails leaves other calls of the same moment as they are', async (t) => {
    const { store, all } = await begin(t, fresh);
    await all.insert(thing('1', { count: Number.MAX_SAFE_INTEGER }));
    const full = all.changing({ id: '1' }, { inc: { count: 1 } });
    const [first, taken, refused, alone] = await Promise.allSettled([
      store.commit([all.inserting(thing('2')), all.inserting(thing('3'))]),
      store.commit([all.inserting(thing('4')), all.inserting(thing('1', { email: 'x@example.com' }))]),
      store.commit([all.inserting(thing('5')), full]),
      all.insert(thing('6')),
    ]);
    t.match(first, { value: { committed: true } });
    t.match(taken, { reason: UniqueViolation });
    t.match(refused, { reason: RefusedDocument });
    t.match(alone, { status: 'fulfilled' });
    const { items } = await all.page({ sort: 'id', limit: 10 });
    t.strictSame(
      items.map(({ id }) => id),
      ['1', '2', '3', '6'],
    );
  });

  t.test('of fifty concurrent commits with the same condition one is made', async (t) => {
    const { store, all } = await begin(t, fresh);
    await all.insert(thing('1', { group: null }));
    const outcomes = await Promise.all(
      Array.from({ length: 50 }, (_, i) =>
        store.commit([
          all.changing({ id: '1', group: null }, { set: { group: `w${i}` } }),
          all.inserting(thing(`w${i}`)),
        ]),
      ),
    );
    const made = outcomes.map(({ committed }) => committed);
    const winner = `w${made.indexOf(true)}`;
    t.equal(made.filter(Boolean).length, 1);
    t.equal((await all.findOne({ id: '1' }))?.group, winner);
    t.ok(await all.findOne({ id: winner }));
    t.equal(await all.count(), 2, 'the others insert nothing');
  });

  t.test('commits of the same documents in different orders are all made', async (t) => {
    const { store, all } = await begin(t, fresh);
    const others = notes(store);
    await all.insert(thing('1', { count: 0 }));
    await all.insert(thing('2', { count: 0 }));
    const add = (id: string) => all.changing({ id }, { inc: { count: 1 } });
    const outcomes = await Promise.all(
      Array.from({ length: 30 }, (_, i) => {
        const both = [add('1'), add('2')];
        return store.commit([...(i % 2 ? both : both.reverse()), others.ensuring({ id: 'same' })]);
      }),
    );
    t.ok(outcomes.every(({ committed }) => committed));
    t.equal((await all.findOne({ id: '1' }))?.count, 30);
    t.equal((await all.findOne({ id: '2' }))?.count, 30);
    t.equal(await others.count(), 1);
  });

  t.test('invalid writes are refused before anything is written', async (t) => {
    const { store, all } = await begin(t, fresh);
    t.throws(() => all.inserting({ id: '1' } as Thing), RefusedDocument);
    t.throws(() => all.ensuring({ id: '1' } as Thing), RefusedDocument);
    t.throws(() => all.changing({ id: '1' }, { set: { id: '2' } } as never), RefusedDocument);
    t.throws(() => all.changing({} as never, { set: { at: 1 } }), RefusedSelector);
    t.throws(() => all.changing({ unknown: '1' } as never, { set: { at: 1 } }), RefusedSelector);
    t.throws(() => all.deleting({} as never), RefusedSelector);
    t.equal(await all.count(), 0);
    const write = all.inserting(thing('1'));
    const last = store.commit([write]);
    await store.close();
    t.strictSame(await last, { committed: true }, 'a call before the end of the store is made');
    await t.rejects(store.commit([write]), StoreUnavailable);
  });

  t.test('kill -9 loses no acknowledged commit, and leaves none in part', async (t) => {
    const uri = fresh(t);
    const acknowledged = new Set<string>();
    const child = await startWorker(t, uri, 'commits');
    child.on('message', (id: string) => {
      if (acknowledged.add(id).size >= COMMITS) child.kill('SIGKILL');
    });
    const [, signal] = await once(child, 'exit');
    t.equal(signal, 'SIGKILL');
    const store = await openStore(uri);
    t.teardown(() => store.close());
    const all = things(store);
    for (const id of acknowledged) t.ok(await all.findOne({ id }), id);
    const { items: lanes } = await all.page({ where: { open: true }, sort: 'id', limit: 100 });
    t.ok(lanes.length > 1);
    for (const { id, count = 0 } of lanes) t.equal(await all.count({ group: id }), count, id);
  });
}

/** Documents are inserted, updated, deleted and read. */
import type { Test } from 'tap';
import {
  RefusedDocument,
  RefusedSelector,
  StoreUnavailable,
  UniqueViolation,
} from '../../../../src/core/storage/collection.js';
import { openStore } from '../../../../src/core/storage/open.js';
import { begin, DECLARATION, type Fresh, type Thing, thing } from '../kit.js';

/** This part of the contract. */
export function documents(t: Test, fresh: Fresh): void {
  t.test('documents are read as they were written', async (t) => {
    const { all } = await begin(t, fresh);
    const doc = thing('1', {
      at: null,
      open: false,
      count: -0,
      free: {
        deep: [1.5, 'ä\0😀', '', null, { a: {} }],
        $ref: 'x',
        $id: 1,
        _bsontype: 'Long',
        'a.b\0': 1,
        '': 2,
      },
    });
    await all.insert(doc);
    t.strictSame(await all.findOne({ id: '1' }), { ...doc, count: 0 });
    t.equal(await all.findOne({ id: '2' }), null);
    t.strictSame(
      await all.updateOne({ id: '1' }, { set: { group: 'a', free: [] }, unset: ['at'], inc: { count: 2 } }),
      { id: '1', email: '1@example.com', open: false, count: 2, group: 'a', free: [] },
    );
    t.strictSame(await all.updateOne({ id: '1' }, { unset: ['at', 'free', 'count'] }), {
      id: '1',
      email: '1@example.com',
      open: false,
      group: 'a',
    });
    t.strictSame(await all.updateOne({ id: '1' }, { inc: { count: -3 } }), await all.findOne({ count: -3 }));
    t.equal(await all.updateOne({ id: '2' }, { set: { group: 'b' } }), null);
    t.equal((await all.deleteOne({ id: '1' }))?.group, 'a');
    t.equal(await all.deleteOne({ id: '1' }), null);
    t.equal(await all.count(), 0);
  });

  t.test('changeOne tells whether there was a document to change', async (t) => {
    const { all } = await begin(t, fresh);
    await all.insert(thing('1', { at: 1, count: 1, free: 'x' }));
    t.equal(
      await all.changeOne(
        { id: '1' },
        { set: { group: 'a', free: { $x: [] } }, unset: ['at'], inc: { count: 2 } },
      ),
      true,
    );
    const after = thing('1', { count: 3, free: { $x: [] }, group: 'a' });
    t.strictSame(await all.findOne({ id: '1' }), after);
    t.equal(
      await all.changeOne({ id: '1', group: 'a' }, { set: { group: 'a' } }),
      true,
      'without a difference',
    );
    t.equal(await all.changeOne({ id: '1' }, { set: { group: '$email' } }), true);
    t.equal(await all.changeOne({ id: '1', group: '$group' }, { set: { group: 'b' } }), false);
    t.equal((await all.findOne({ id: '1' }))?.group, '$email', 'text is not evaluated');
    t.equal(await all.changeOne({ email: '1@example.com' }, { unset: ['group'] }), true, 'by another field');
    t.equal(await all.changeOne({ email: 'x@example.com' }, { unset: ['group'] }), false);
    t.equal(await all.changeOne({ id: { in: ['0', '1'] }, at: null }, { set: { at: 5 } }), true);
    t.equal(await all.changeOne({ id: '1', at: null }, { set: { at: 6 } }), false);
    t.equal(await all.changeOne({ id: '2' }, { set: { at: 6 } }), false);
    t.equal(await all.changeOne({ id: '2', email: '2@example.com', at: 6 }, { inc: { at: 1 } }), false);
    t.equal(await all.count(), 1, 'nothing is inserted');
    t.equal((await all.findOne({ id: '1' }))?.at, 5);
  });

  t.test('each of several concurrent calls of changeOne has an outcome of its own', async (t) => {
    const { all } = await begin(t, fresh);
    const full = { count: Number.MAX_SAFE_INTEGER };
    const docs = [
      thing('1', { at: 1 }),
      thing('2', { at: 2, group: null }),
      thing('3'),
      thing('4', full),
      thing('5', { at: null }),
    ];
    for (const doc of docs) await all.insert(doc);
    const results = await Promise.allSettled([
      all.changeOne({ id: '1', at: 1 }, { set: { group: 'a' } }),
      all.changeOne({ id: '1', at: 2 }, { set: { group: 'b' } }),
      all.changeOne({ id: 'missing' }, { set: { group: 'c' } }),
      all.changeOne({ id: '2', group: null, at: { gt: 1, lte: 2 } }, { set: { group: 'd' } }),
      all.changeOne({ id: '2', at: { in: [3] } }, { set: { group: 'e' } }),
      all.changeOne({ id: '3' }, { set: { email: '1@example.com' } }),
      all.changeOne({ id: '4' }, { inc: { count: 1 } }),
      all.changeOne({ id: '4', group: 'x' }, { inc: { count: 1 } }),
      all.changeOne({ id: '4' }, { inc: { count: -1 } }),
      all.changeOne({ id: '5' }, { inc: { at: 1 } }),
      all.changeOne({ id: 'missing', at: null }, { inc: { at: 1 } }),
      ...Array.from({ length: 80 }, () => all.changeOne({ id: '3' }, { inc: { at: 1 } })),
    ]);
    const outcomes = results.map((result) =>
      result.status === 'fulfilled' ? result.value : (result.reason as Error).name,
    );
    // The sixth to ninth: whether the increment comes before the decrement is open.
    t.ok([true, 'RefusedDocument'].includes(outcomes.splice(6, 1)[0] as never));
    t.strictSame(outcomes, [
      ...[true, false, false, true, false, 'UniqueViolation', false, true, 'RefusedDocument', false],
      ...Array.from({ length: 80 }, () => true),
    ]);
    const [violation] = results.flatMap((one) => (one.status === 'rejected' ? [one.reason as unknown] : []));
    t.match(violation, { collection: 'things', field: 'email' });
    const { items } = await all.page({ sort: 'id', limit: 10 });
    t.strictSame(
      items.map(({ id, group, at }) => [id, group, at]),
      [
        ['1', 'a', 1],
        ['2', 'd', 2],
        ['3', undefined, 80],
        ['4', undefined, undefined],
        ['5', undefined, null],
      ],
    );
  });

  t.test('changeOne with a condition that requires a value matches neither null nor absence', async (t) => {
    const { all } = await begin(t, fresh);
    await all.insert(thing('absent'));
    await all.insert(thing('null', { at: null }));
    const conditions = [1, { gt: 0 }, { gte: 0 }, { lt: 2 }, { lte: 2 }, { gt: 0, lte: 2 }, { in: [1] }];
    const calls = ['absent', 'null', 'missing'].flatMap((id) =>
      conditions.map((at) => all.changeOne({ id, group: null, at }, { set: { group: 'changed' } })),
    );
    t.strictSame(
      await Promise.all(calls),
      calls.map(() => false),
    );
    t.equal(await all.count({ group: null }), 2, 'nothing is changed or inserted');
    await all.updateOne({ id: 'null' }, { set: { at: 1 } });
    for (const at of conditions) t.equal(await all.changeOne({ id: 'null', at }, { set: { at: 1 } }), true);
  });

  t.test('a unique violation names its field and fails only its own call', async (t) => {
    const { all } = await begin(t, fresh);
    await all.insert(thing('1'));
    const taken = async (call: Promise<unknown>, field: string): Promise<void> => {
      const error = await t.rejects(call, UniqueViolation);
      t.match(error, { collection: 'things', field });
    };
    await taken(all.insert(thing('1', { email: 'other@example.com' })), 'id');
    await all.insert(thing('n', { count: Number.MAX_SAFE_INTEGER }));
    // Concurrent, so that an engine that commits several writes together has to tell them apart.
    await Promise.all([
      all.insert(thing('2')),
      taken(all.insert(thing('3', { email: '1@example.com' })), 'email'),
      all.insert(thing('4')),
      t.rejects(all.updateOne({ id: 'n' }, { inc: { count: 1 } }), RefusedDocument),
    ]);
    await Promise.all([
      taken(all.updateOne({ id: '4' }, { set: { email: '2@example.com' } }), 'email'),
      taken(all.insert(thing('5', { email: '2@example.com' })), 'email'),
      all.updateOne({ id: 'n' }, { set: { group: 'g' } }),
    ]);
    await all.updateOne({ id: '2' }, { set: { email: 'two@example.com' } });
    await all.insert(thing('5', { email: '2@example.com' }));
    const { items } = await all.page({ sort: 'id', limit: 10 });
    t.strictSame(
      items.map(({ id, email }) => [id, email]),
      [
        ['1', '1@example.com'],
        ['2', 'two@example.com'],
        ['4', '4@example.com'],
        ['5', '2@example.com'],
        ['n', 'n@example.com'],
      ],
    );
  });

  t.test(
    'insertMany reports a taken id or unique value and leaves existing documents as they are',
    async (t) => {
      const { all } = await begin(t, fresh);
      const docs = Array.from({ length: 700 }, (_, i) => thing(`m${i}`, { at: i }));
      t.equal(await all.insertMany(docs), true);
      t.equal(await all.count(), 700);
      t.strictSame(await all.findOne({ id: 'm699' }), docs[699]);
      t.equal(await all.insertMany([]), true);
      t.equal(await all.insertMany([thing('n1'), thing('m7', { at: 0 })]), false, 'the id');
      t.equal(await all.insertMany([thing('n2', { email: 'm7@example.com' })]), false, 'a unique field');
      t.strictSame(await all.findOne({ id: 'm7' }), docs[7]);
      t.equal(await all.findOne({ id: 'n2' }), null);
      await t.rejects(all.insertMany([thing('n3'), thing('n4', { at: 1.5 })]), RefusedDocument);
      t.equal(await all.findOne({ id: 'n3' }), null);
    },
  );

  t.test('updateMany, deleteMany and count affect exactly the matching documents', async (t) => {
    const { all } = await begin(t, fresh);
    await Promise.all(
      Array.from({ length: 700 }, (_, i) => all.insert(thing(`m${i}`, { at: i, group: i % 7 ? 'x' : 'y' }))),
    );
    t.equal(
      await all.updateMany({ at: { gte: 0 } }, { inc: { at: 1000 } }),
      700,
      'a document that still matches changes once',
    );
    t.equal(await all.count({ at: { gte: 1000, lt: 1700 } }), 700);
    t.equal(await all.deleteMany({ group: 'x' }), 600);
    t.equal(await all.deleteMany({ group: 'x' }), 0);
    t.equal(await all.count(), 100);
    t.equal(await all.count({}, 30), 30, 'up to the limit');
    t.equal(await all.count({ group: 'y' }, 101), 100);
    await t.rejects(all.count({}, 0), RefusedSelector);
    t.strictSame(await all.estimate(), { count: 100, isExact: true });
  });

  t.test('an estimate of more than 10,000 documents is approximate and close', async (t) => {
    const { all } = await begin(t, fresh);
    t.strictSame(await all.estimate(), { count: 0, isExact: true });
    for (let from = 0; from < 12_000; from += 1000) {
      await Promise.all(
        Array.from({ length: 1000 }, (_, i) => all.insert(thing(`m${from + i}`, { at: from + i }))),
      );
    }
    t.equal(await all.deleteMany({ at: { gte: 300, lt: 800 } }), 500, 'gaps are not counted');
    const { count, isExact } = await all.estimate();
    t.equal(isExact, false);
    t.ok(Math.abs(count - 11_500) < 1000, `${count}`);
  });

  t.test('written documents are present when the store is opened again', async (t) => {
    const { uri, store } = await begin(t, fresh);
    const before = store.collection<Thing>('later');
    await before.insert(thing('1', { at: 5, label: 'a' }));
    await t.rejects(before.findOne({ at: 5 }), RefusedSelector);
    t.equal(store.collection<Thing>('later'), before);
    t.throws(() => store.collection<Thing>('later', DECLARATION), /already declared with other/);
    t.throws(
      () => store.collection<Thing>('later', { numbers: ['at'] }),
      /already declared with other fields/,
    );
    const last = before.insert(thing('2', { at: 6 }));
    await store.close();
    await last;
    await store.close();
    const calls: (() => Promise<unknown>)[] = [
      () => before.findOne({ id: '1' }),
      () => before.insert(thing('3')),
      () => store.ready(),
    ];
    for (const call of calls) await t.rejects(call(), StoreUnavailable);

    const again = await openStore(uri);
    t.teardown(() => again.close());
    const after = again.collection<Thing>('later', DECLARATION);
    await again.ready();
    t.strictSame(
      await after.findOne({ at: { gt: 5 } }),
      thing('2', { at: 6 }),
      'fields declared since can be asked for',
    );
    t.match(await after.findOne({ label: 'a' }), { id: '1' });
    await t.rejects(after.insert(thing('3', { email: '1@example.com' })), UniqueViolation, 'and are unique');
    t.throws(() => again.collection<Thing>('a"b'), TypeError);
    t.throws(() => again.collection<{ id: string; doc: string }>('c', { unique: ['doc'] }), TypeError);
  });
}

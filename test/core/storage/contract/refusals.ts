/** Arguments that are refused before they reach an engine. */
import type { Test } from 'tap';
import {
  type Change,
  RefusedDocument,
  RefusedSelector,
  type Where,
} from '../../../../src/core/storage/collection.js';
import { begin, type Fresh, type Thing, thing } from '../kit.js';

/** This part of the contract. */
export function refusals(t: Test, fresh: Fresh): void {
  t.test('filters that could match by mistake are refused', async (t) => {
    const { all } = await begin(t, fresh);
    await all.insert(thing('1'));
    const lost = [
      undefined,
      '',
      Number.NaN,
      0.5,
      2 ** 53,
      1n,
      Symbol('s'),
      new Date(0),
      () => 1,
      [],
      ['1'],
      '\ud800',
      'a\0',
    ];
    const operators = [
      {},
      { ne: '1' },
      { $ne: '1' },
      { in: '1' },
      { in: [null] },
      { in: [], gt: '1' },
      { gt: null },
      new Map(),
    ];
    const filters: unknown[] = [
      null,
      [],
      '1',
      new Date(0),
      new Map([['id', '1']]),
      Object.create({ id: '1' }),
      { id: null },
      { email: null },
      { free: 1 },
      { unknown: '1' },
      { $or: [] },
      { 'free.deep': 1 },
      { [Symbol('id')]: '1' },
      JSON.parse('{"__proto__":{"id":"1"}}'),
      { constructor: '1' },
      { id: '1', toString: '1' },
      ...[
        ...lost,
        ...operators,
        ...lost.map((value) => ({ gt: value })),
        ...lost.map((value) => ({ in: [value] })),
      ].map((group) => ({ id: '1', group })),
      { id: '1', at: '1' },
      { id: '1', at: { gt: '1' } },
      { id: '1', group: 1 },
      { id: '1', group: { in: ['1', 1] } },
      { id: '1', open: 1 },
      { id: '1', at: true },
    ];
    const calls: Record<string, (where: Where<Thing>) => Promise<unknown>> = {
      findOne: (where) => all.findOne(where),
      updateOne: (where) => all.updateOne(where, { set: { group: 'hit' } }),
      changeOne: (where) => all.changeOne(where, { set: { group: 'hit' } }),
      deleteOne: (where) => all.deleteOne(where),
      updateMany: (where) => all.updateMany(where, { set: { group: 'hit' } }),
      deleteMany: (where) => all.deleteMany(where),
      page: (where) => all.page({ where, sort: 'id', limit: 1 }),
      count: (where) => all.count(where),
    };
    for (const [name, call] of Object.entries(calls)) {
      // Only lists and counts may cover everything, and only explicitly.
      const lostFilters = { page: [undefined], count: [] }[name] ?? [undefined, {}];
      for (const [i, filter] of [...filters, ...lostFilters].entries()) {
        await t.rejects(call(filter as Where<Thing>), RefusedSelector, `${name}, filter ${i}`);
      }
    }
    t.strictSame(await all.findOne({ id: '1' }), thing('1'));
  });

  t.test('values that are not plain documents or changes are refused', async (t) => {
    const { all } = await begin(t, fresh);
    const deep = { value: [] as unknown[] };
    deep.value.push(deep);
    const nested = [
      undefined,
      Number.NaN,
      Infinity,
      1n,
      Symbol('s'),
      new Date(0),
      () => 1,
      '\udfff',
      new Map(),
      deep,
      JSON.parse('{"__proto__":1}'),
      { '\ud800': 1 },
      new Array(1),
    ];
    const held = ['', 'a\0', {}, []];
    const docs: unknown[] = [
      undefined,
      null,
      [],
      'x',
      new Date(0),
      {},
      { id: '1' },
      { email: 'a' },
      { id: 1, email: 'a' },
      { id: '', email: 'a' },
      { id: '1', email: null },
      { id: '1', email: '' },
      { id: '1', email: 'a', _id: 1 },
      { id: '1', email: 'a', $set: 1 },
      { id: '1', email: 'a', 'a.b': 1 },
      { id: '1', email: 'a', constructor: 1 },
      { id: '1', email: 'a', [Symbol('s')]: 1 },
      { id: '1', email: 'a', at: '1' },
      { id: '1', email: 'a', open: 'true' },
      ...[...nested, ...held, 1, 0.5, true].map((group) => ({ id: '1', email: 'a', group })),
      ...nested
        .flatMap((value) => [value, [value], { value }])
        .map((free) => ({ id: '1', email: 'a', free })),
    ];
    for (const [i, doc] of docs.entries())
      await t.rejects(all.insert(doc as Thing), RefusedDocument, `document ${i}`);
    t.equal(await all.count(), 0);

    await all.insert(thing('1', { count: 1, group: 'g' }));
    const changes: unknown[] = [
      undefined,
      null,
      [],
      {},
      { set: {} },
      { set: undefined },
      { set: [] },
      { unset: 'group' },
      { unset: [1] },
      { unset: [undefined] },
      { push: { free: 1 } },
      { $set: { group: 'x' } },
      { set: { id: '2' } },
      { unset: ['id'] },
      { unset: ['email'] },
      { inc: { id: 1 } },
      { inc: { email: 1 } },
      { set: { email: null } },
      { set: { email: '' } },
      { set: { group: 'x' }, unset: ['group'] },
      { set: { count: 1 }, inc: { count: 1 } },
      { unset: ['count'], inc: { count: 1 } },
      { unset: ['count', 'count'] },
      { inc: { count: 0.5 } },
      { inc: { count: '1' } },
      { inc: { count: undefined } },
      { inc: { count: Number.MAX_SAFE_INTEGER } },
      { inc: { group: 1 } },
      { set: { count: '2' } },
      { set: { open: 1 } },
      { set: JSON.parse('{"__proto__":{"a":1}}') },
      { unset: ['__proto__'] },
      { set: { 'a.b': 1 } },
      ...[...nested, ...held].map((group) => ({ set: { group } })),
      ...nested.map((free) => ({ set: { free } })),
    ];
    for (const [i, change] of changes.entries()) {
      await t.rejects(all.updateOne({ id: '1' }, change as Change<Thing>), RefusedDocument, `change ${i}`);
      await t.rejects(all.changeOne({ id: '1' }, change as Change<Thing>), RefusedDocument, `change ${i}`);
      await t.rejects(
        all.updateMany({ id: '1' }, change as Change<Thing>),
        RefusedDocument,
        `change ${i} to many`,
      );
    }
    await t.rejects(all.updateMany({ id: '1' }, { set: { email: 'x' } }), RefusedDocument);
    await all.insert(thing('2', { count: 1, at: null }));
    await t.rejects(all.updateOne({ id: '2' }, { inc: { at: 1 } }), RefusedDocument, 'null is no number');
    t.strictSame(await all.findOne({ id: '1' }), thing('1', { count: 1, group: 'g' }));
  });
}

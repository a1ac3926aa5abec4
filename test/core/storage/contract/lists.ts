/** Filters, sort orders and pages. */
import type { Test } from 'tap';
import { type Condition, RefusedSelector, type Where } from '../../../../src/core/storage/collection.js';
import { compare, matches } from '../../../../src/core/storage/semantics.js';
import { numbersFrom } from '../../../kit/random.js';
import { begin, type Fresh, type Thing, thing } from '../kit.js';

/** This part of the contract. */
export function lists(t: Test, fresh: Fresh): void {
  t.test('filters and sort orders match their reference implementation', async (t) => {
    const { all } = await begin(t, fresh);
    const next = numbersFrom(7);
    const pick = <V>(values: readonly V[]): V => values[next() % values.length] as V;
    const words = ['a', 'A', 'ab', 'ä', '\uffff', '😀', '1', 'true', "'; --", '%', '\u001f'];
    const numbers = [0, -1, 1, 2, 1e15, Number.MAX_SAFE_INTEGER, -Number.MAX_SAFE_INTEGER];
    const docs = Array.from({ length: 300 }, (_, i) => {
      const doc = thing(`${pick(words)}${i}`);
      if (next() % 4) doc.group = next() % 6 ? pick(words) : null;
      if (next() % 4) doc.at = next() % 6 ? pick(numbers) : null;
      if (next() % 2) doc.open = pick([true, false]);
      if (next() % 8 === 0) doc.label = next() % 6 ? pick(words) : null;
      return doc;
    });
    await Promise.all(docs.map((doc) => all.insert(doc)));
    const condition = <V>(values: readonly V[]): Condition<V> => {
      const form = next() % 6;
      if (form === 0) return null;
      if (form === 1) return { in: [pick(values), pick(values)] };
      if (form === 2) return { [pick(['lt', 'lte', 'gt', 'gte'])]: pick(values) } as Condition<V>;
      if (form === 3) {
        return { [pick(['gt', 'gte'])]: pick(values), [pick(['lt', 'lte'])]: pick(values) } as Condition<V>;
      }
      return pick(values);
    };
    const disagreements: object[] = [];
    for (let round = 0; round < 300; round++) {
      const where: Where<Thing> = {};
      if (next() % 2) where.group = condition(words);
      if (next() % 2) where.at = condition(numbers);
      if (next() % 4 === 0) where.open = condition([true, false]);
      if (next() % 4 === 0) where.label = condition(words);
      const sort = pick(['at', 'group', 'open', 'label', 'id', 'email'] as const);
      const desc = pick([true, false]);
      const expected = docs.filter((doc) => matches(doc, where)).sort(byField(sort, desc));
      const { items } = await all.page({ where, sort, desc, limit: 1000 });
      const ids = items.map(({ id }) => id);
      const wanted = expected.map(({ id }) => id);
      const counted = await all.count(where);
      if (counted !== wanted.length || JSON.stringify(ids) !== JSON.stringify(wanted))
        disagreements.push({ where, sort, desc, ids, wanted, counted });
      const some = Array.from({ length: 8 }, () => pick(docs));
      const changed = await Promise.all(
        some.map(({ id }) => all.changeOne({ ...where, id }, { set: { free: round } })),
      );
      const matching = some.map((doc) => matches(doc, where));
      if (JSON.stringify(changed) !== JSON.stringify(matching))
        disagreements.push({ where, some, changed, matching });
    }
    t.same(disagreements, []);
    t.equal(await all.count({ id: { in: [] } }), 0);
    t.equal(await all.count({ id: { in: docs.map(({ id }) => id) } }), docs.length);
  });

  t.test('pages neither skip nor repeat documents while the list changes', async (t) => {
    const { all } = await begin(t, fresh);
    const stay = Array.from({ length: 40 }, (_, i) =>
      thing(`s${i}`, i % 4 ? { at: i % 7 } : i % 8 ? { at: null } : {}),
    );
    await Promise.all(stay.map((doc) => all.insert(doc)));
    for (const sort of ['at', 'id', 'email'] as const) {
      for (const desc of [false, true]) {
        const seen: string[] = [];
        let pages = 0;
        let previous: string | null = null;
        let page = await all.page({ sort, desc, limit: 3 });
        for (;;) {
          seen.push(...page.items.map(({ id }) => id));
          const last = page.items.at(-1) as Thing;
          // Inserts one document before this position and one after it, and deletes the one that the cursor names.
          const at = Math.max(last.at ?? 0, 1);
          if (previous) await all.deleteMany({ group: previous });
          previous = `g${sort}${desc}${++pages}`;
          await all.insert(thing(`a${previous}`, { at: at - 1, group: previous }));
          await all.insert(thing(`z${previous}`, { at: at + 1, group: previous }));
          if (!page.next) break;
          if (last.id.startsWith('s')) await all.deleteOne({ id: last.id });
          page = await all.page({ sort, desc, limit: 3, after: page.next });
          if (last.id.startsWith('s')) await all.insert(last);
        }
        const wanted = [...stay].sort(byField(sort, desc)).map(({ id }) => id);
        t.strictSame(
          seen.filter((id) => id.startsWith('s')),
          wanted,
          `${sort} ${desc ? 'descending' : 'ascending'}`,
        );
        t.equal(new Set(seen).size, seen.length);
        if (previous) await all.deleteMany({ group: previous });
      }
    }
  });

  t.test('a cursor is valid only for its own sort order', async (t) => {
    const { all } = await begin(t, fresh);
    for (const id of ['1', '2', '3']) await all.insert(thing(id));
    const { next } = await all.page({ sort: 'id', limit: 1 });
    t.match(next, /^[\w-]+$/);
    const after = next as string;
    t.strictSame((await all.page({ sort: 'id', limit: 2, after })).next, null);
    const forged = (parts: unknown): string => Buffer.from(JSON.stringify(parts)).toString('base64url');
    for (const query of [
      { sort: 'email', after },
      { sort: 'id', desc: true, after },
      ...[
        '',
        'x',
        '!',
        forged(1),
        forged(['id', false, {}, '1']),
        forged(['id', false, '1', '']),
        7 as never,
      ].map((after) => ({ sort: 'id', after })),
    ] as const) {
      await t.rejects(all.page({ limit: 1, ...query } as never), RefusedSelector, JSON.stringify(query));
    }
    for (const limit of [0, -1, 1.5, 1001, Number.NaN, '1' as never]) {
      await t.rejects(all.page({ sort: 'id', limit }), RefusedSelector);
    }
    await t.rejects(all.page({ sort: 'free' as never, limit: 1 }), RefusedSelector);
    await t.rejects(all.page({ sort: 'id', limit: 1, where: undefined as never }), RefusedSelector);
  });
}

function byField(
  sort: 'id' | 'email' | 'at' | 'group' | 'open' | 'label',
  desc: boolean,
): (a: Thing, b: Thing) => number {
  return (a, b) => {
    const [x, y] = [a[sort] ?? null, b[sort] ?? null];
    const order = x === null || y === null ? Number(y === null) - Number(x === null) : compare(x, y);
    return (desc ? -1 : 1) * (order || compare(a.id, b.id));
  };
}

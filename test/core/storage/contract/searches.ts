/** Texts are found by any part of them. */
import type { Test } from 'tap';
import { type Collection, RefusedSelector } from '../../../../src/core/storage/collection.js';
import { readCollection } from '../../../../src/core/storage/inspect.js';
import { openStore } from '../../../../src/core/storage/open.js';
import { waitUntil } from '../../../kit/wait.js';
import { DECLARATION, type Fresh, type Thing, thing } from '../kit.js';

const SEARCHED = { ...DECLARATION, sparse: [], text: ['email', 'label'] } as const;

/** This part of the contract. */
export function searches(t: Test, fresh: Fresh, unindexed: (t: Test, uri: string) => Promise<number>): void {
  const begin = async (t: Test, uri = fresh(t)) => {
    const store = await openStore(uri);
    t.teardown(() => store.close());
    const all = store.collection<Thing>('things', SEARCHED);
    return { uri, store, all, find: finder(all) };
  };

  t.test('a part of a field is found in any case, and nothing else is', async (t) => {
    const { all, find } = await begin(t);
    const long = `${'very long name '.repeat(8)}End`;
    await all.insert(thing('1', { email: 'Ada@Example.com', label: 'Ada LOVELACE' }));
    await all.insertMany([
      thing('2', { email: 'joerg@example.com', label: 'JÖRG Ёлка Ωmega' }),
      thing('3', { label: long }),
      thing('4', { label: 'abcd bcde' }),
    ]);
    t.strictSame(await find('example'), ['1', '2', '3', '4']);
    t.strictSame(await find('LOVE'), ['1']);
    t.strictSame(await find('da@EX'), ['1'], 'from within the text');
    t.strictSame(await find('ace'), ['1'], 'its end');
    t.strictSame(await find('jörg ё'), ['2']);
    t.strictSame(await find('ЁЛКА ω'), ['2']);
    t.strictSame(await find('jorg'), [], 'a letter with a mark is another one');
    t.strictSame(await find(long.slice(3, 60).toUpperCase()), ['3'], 'longer than a part');
    t.strictSame(await find(`${long.slice(3, 60)}x`), []);
    t.strictSame(await find('ada lovelace2'), [], 'longer than the text');
    t.strictSame(await find('comAda'), [], 'from one field into the other');
    t.strictSame(await find('abcde'), [], 'trigrams that are apart');
    t.strictSame(await find('nobody'), []);
    t.equal((await all.search('example', 2)).length, 2);
    t.strictSame(await all.search('lovelace', 5), [
      thing('1', { email: 'Ada@Example.com', label: 'Ada LOVELACE' }),
    ]);
  });

  t.test('characters with a meaning in a query are text', async (t) => {
    const { all, find } = await begin(t);
    const texts = [
      '100%_sure',
      `"quoted" 'text'`,
      'a*b.*c',
      String.raw`back\slash`,
      '$email {x}',
      'x😀😀y',
      '(NEAR OR) -',
      'one\ntwo',
    ];
    for (const [index, label] of texts.entries()) await all.insert(thing(String(index), { label }));
    for (const [index, label] of texts.entries()) {
      t.strictSame(await find(label), [String(index)], label);
      t.strictSame(await find([...label].slice(1, 4).join('')), [String(index)], 'a part');
    }
    for (const text of [
      '100__sure',
      '100%%sure',
      'a.*c',
      '*b.',
      'label:quo',
      'quo*',
      '.+.',
      '\\w\\w',
      "'text' OR",
    ])
      t.strictSame(await find(text), text === '*b.' ? ['2'] : [], text);
  });

  t.test('what is found follows each change', async (t) => {
    const { store, all, find } = await begin(t);
    await all.insert(thing('1', { email: 'first@example.com' }));
    await all.updateOne({ id: '1' }, { set: { label: 'Grace' } });
    t.strictSame(await find('grace'), ['1']);
    await all.changeOne({ id: '1', at: null }, { set: { email: 'second@example.com', at: 1 } });
    t.strictSame([await find('first'), await find('second'), await find('grace')], [[], ['1'], ['1']]);
    await all.updateMany({ at: 1 }, { set: { label: 'Hopper' } });
    t.strictSame([await find('grace'), await find('hopper')], [[], ['1']]);
    await all.updateMany({ at: 1 }, { inc: { at: 1 }, set: { group: 'hoppers' } });
    t.strictSame([await find('hopper'), await find('hoppers')], [['1'], []], 'another field is not searched');
    await all.changeOne({ id: '1' }, { unset: ['label'] });
    t.strictSame([await find('hopper'), await find('second')], [[], ['1']]);
    await all.updateOne({ id: '1' }, { set: { label: null } });
    await store.commit([
      all.changing({ id: '1' }, { set: { label: 'Turing' } }),
      all.inserting(thing('2', { label: 'Church' })),
      all.ensuring(thing('3', { label: 'Gödel' })),
    ]);
    await store.commit([
      all.ensuring(thing('3', { label: 'Other' })),
      all.changing({ id: '2' }, { unset: ['label'] }),
    ]);
    t.strictSame(await Promise.all(['turing', 'church', 'gödel', 'other'].map(find)), [['1'], [], ['3'], []]);
    const undone = await store.commit([
      all.changing({ id: '1' }, { set: { label: 'Undone' } }),
      all.deleting({ id: 'x' }),
    ]);
    t.equal(undone.committed, false);
    t.strictSame([await find('undone'), await find('turing')], [[], ['1']]);
    await all.deleteOne({ id: '1' });
    await all.deleteMany({ email: '3@example.com' });
    t.strictSame([await find('turing'), await find('gödel'), await find('example')], [[], [], ['2']]);
    t.equal((await all.search('example', 1)).length, 1, 'what is gone takes no place');
    await all.insert(thing('4', { label: 'New' }));
    t.strictSame(await find('new'), ['4']);
    t.strictSame(await all.page({ sort: 'id', limit: 9 }), {
      items: [thing('2'), thing('4', { label: 'New' })],
      next: null,
    });
  });

  t.test('documents from before the declaration are found at once', async (t) => {
    const uri = fresh(t);
    const store = await openStore(uri);
    const { text: _, ...before } = SEARCHED;
    const old = store.collection<Thing>('things', before);
    await old.insertMany(
      Array.from({ length: 300 }, (_, at) => thing(`old${at}`, { at, ...(at % 2 && { label: 'Old' }) })),
    );
    const [{ find, all, store: one }, { store: other }] = await Promise.all([begin(t, uri), begin(t, uri)]);
    const isFound = async (when: string) => {
      t.strictSame(await find('old299@'), ['old299'], when);
      t.equal((await all.search('OLD', 500)).length, 300, when);
      t.equal((await all.search('old', 200)).length, 200, when);
    };
    await isFound('before the index has them');
    await old.insert(thing('later'));
    t.strictSame(await find('later'), ['later'], 'what the older version has inserted');
    await Promise.all([one.ready(), other.ready()]);
    await isFound('meanwhile');
    await waitUntil('the index has all', async () => (await unindexed(t, uri)) === 0);
    await isFound('by the index');
    await old.updateOne({ id: 'old299' }, { set: { email: 'new299@example.com' } });
    t.strictSame(
      (await old.findOne({ id: 'old299' }))?.email,
      'new299@example.com',
      'the older version reads on',
    );
    t.strictSame(await find('old299@'), [], 'what it has changed is not found by what it was');
    await store.close();
    const copied = await readCollection<Thing, Thing[]>(
      uri,
      'things',
      async (found) => (await found.page({ where: { id: 'later' }, sort: 'id', limit: 1 })).items,
    );
    t.strictSame(copied, [thing('later')], 'nothing derived is read');
  });

  t.test('a search needs three characters, a limit and a field', async (t) => {
    const { store, all } = await begin(t);
    for (const text of ['', 'ab', '😀😀', 'a\0bc', '\ud800ab', undefined as never])
      await t.rejects(all.search(text, 5), RefusedSelector, JSON.stringify(text));
    for (const limit of [0, 1.5, 1001, Number.NaN])
      await t.rejects(all.search('abc', limit), RefusedSelector);
    await t.rejects(store.collection<Thing>('others', {}).search('abc', 5), RefusedSelector);
  });
}

/** Searches, and returns the ids in order. */
const finder =
  (all: Collection<Thing>) =>
  async (text: string): Promise<string[]> =>
    (await all.search(text, 20)).map(({ id }) => id).sort();

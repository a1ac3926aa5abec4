import t, { type Test } from 'tap';
import { createCommit, decideAndCommit } from '../../../src/core/ops/commit.js';
import { openStore } from '../../../src/core/storage/open.js';

interface Holder {
  id: string;
  place: string;
  count: number;
}

async function places(t: Test) {
  const store = await openStore('sqlite::memory:');
  t.teardown(() => store.close());
  const holders = store.collection<Holder>('holders', { unique: ['place'], numbers: ['count'] });
  return { holders, commit: createCommit(store) };
}

t.test(
  'concurrent decisions about one document are all made, each about the document as it is',
  async (t) => {
    const { holders, commit } = await places(t);
    await holders.insert({ id: 'a', place: 'p', count: 0 });
    const decide = async () => {
      const { count } = (await holders.findOne({ id: 'a' })) as Holder;
      return { parts: [holders.changing({ id: 'a', count }, { inc: { count: 1 } })], result: count };
    };
    const seen = await Promise.all(Array.from({ length: 20 }, () => decideAndCommit(commit, decide)));
    t.same(
      seen.toSorted((a, b) => a - b),
      Array.from({ length: 20 }, (_, index) => index),
    );
  },
);

t.test('a decision about a unique value can be made again when the value is taken', async (t) => {
  const { holders, commit } = await places(t);
  const take = (id: string, repeatIfTaken: boolean) => {
    let isFirst = true;
    return decideAndCommit(commit, async () => {
      const holder = isFirst ? null : await holders.findOne({ place: 'p' });
      isFirst = false;
      if (holder) return { result: holder.id };
      return { parts: [holders.inserting({ id, place: 'p', count: 0 })], result: id, repeatIfTaken };
    });
  };
  t.equal(await take('a', true), 'a');
  t.equal(await take('b', true), 'a');
  await t.rejects(take('c', false), { name: 'UniqueViolation' });
});

t.test('a condition that never holds is an error that names the collection', async (t) => {
  const { holders, commit } = await places(t);
  const parts = [holders.changing({ id: 'unknown' }, { inc: { count: 1 } })];
  await t.rejects(
    decideAndCommit(commit, async () => ({ parts, result: null })),
    /holders/,
  );
});

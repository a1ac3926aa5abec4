import t from 'tap';
import { httpErrors, invalidFields } from '../../../src/core/kernel/errors.js';
import { applicableOf, changeAll } from '../../../src/shared/console-kit/bulk.js';

/** Changes of everything that a list shows. */

const nameOf = (item: string) => item;

t.test('what could not be changed is named, and the others are changed', async (t) => {
  const changed: string[] = [];
  const change = async (item: string) => {
    if (item.startsWith('gone')) throw httpErrors.NOT_FOUND({ message: 'It is gone.' });
    changed.push(item);
  };
  const items = ['ada', 'gone1', 'bob', 'gone2', 'gone3', 'gone4', 'gone5', 'gone6', 'eve'];
  await t.rejects(changeAll(items, { nameOf, change }), {
    code: 'VALIDATION_ERROR',
    message: /^3 of 9 were changed\. Not changed: gone1: It is gone\. .*gone5: It is gone\. And 1 more\.$/,
  });
  t.same(changed, ['ada', 'bob', 'eve']);
  await changeAll(['ada'], { nameOf, change });
});

t.test('a wrong field and a failure of the server end the change', async (t) => {
  for (const error of [
    invalidFields({ path: 'until', message: 'must be later' }),
    httpErrors.NOT_READY(),
    new Error('of a database'),
  ]) {
    let calls = 0;
    const change = async () => {
      calls++;
      throw error;
    };
    await t.rejects(changeAll(['ada', 'bob'], { nameOf, change }), error);
    t.equal(calls, 1);
  }
});

t.test('items to which the change applies are found behind those that were changed before', async (t) => {
  const all = Array.from({ length: 1200 }, (_, index) => index);
  const query = { search: undefined, filters: {}, parameters: {}, after: undefined, limit: 500 };
  const read = async ({ after = '0', limit }: { after?: string | undefined; limit: number }) => {
    const end = Number(after) + limit;
    return { items: all.slice(Number(after), end), next: end < all.length ? String(end) : null };
  };
  const changed = new Set<number>();
  const sizes: number[] = [];
  for (let isPart = true; isPart; ) {
    const selection = await applicableOf(read, query, (item) => !changed.has(item));
    sizes.push(selection.items.length);
    isPart = selection.isPart;
    for (const item of selection.items) changed.add(item);
  }
  t.same(sizes, [500, 500, 200]);
  t.equal((await applicableOf(read, query, () => false)).isPart, false);

  const endless = async () => ({ items: all.slice(0, 500), next: 'more' });
  t.match(await applicableOf(endless, query, () => false), { items: [], isPart: true });
});

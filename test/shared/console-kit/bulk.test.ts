import t from 'tap';
import { httpErrors, invalidFields } from '../../../src/core/kernel/errors.js';
import { changeAll } from '../../../src/shared/console-kit/bulk.js';

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

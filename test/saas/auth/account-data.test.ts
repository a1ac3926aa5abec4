import t from 'tap';
import type { Declaration, Store } from '../../../src/core/storage/collection.js';
import { declareSaasCollections } from '../../../src/saas/collections.js';
import { PASSWORD, saasApp, storeOf } from '../../kit/app.js';

/** Nothing about a user remains once the account is deleted, in any collection: also in one that is added later. */

type Document = { id: string; userId: string; ownerId: string };
type AnyDeclaration = Declaration<Document>;

/** Collections that keep such documents, and why. */
const KEPT: Record<string, string> = {
  billing_revenue: 'the job of the figures counts what is lost, and deletes it on the next day',
};

/** The declarations of the collections that know of users by their ID, and the field that has it. */
function collectionsOfUsers(store: Store) {
  const found = new Map<string, { declaration: AnyDeclaration; field: 'userId' | 'ownerId' }>();
  declareSaasCollections({
    ...store,
    collection(name, declaration) {
      const { fields = [], unique = [], indexes = [] } = (declaration ?? {}) as unknown as AnyDeclaration;
      const declared = [...fields, ...unique, ...indexes.flat()];
      const field = (['userId', 'ownerId'] as const).find((one) => declared.includes(one));
      if (field && !KEPT[name])
        found.set(name, { declaration: declaration as unknown as AnyDeclaration, field });
      return store.collection(name, declaration);
    },
  });
  return found;
}

t.test('a deleted account leaves no document with its ID', async (t) => {
  const app = await saasApp(t);
  const { id: userId, accessToken: token } = await app.signUp();
  const store = await storeOf(t, app);
  const collections = collectionsOfUsers(store);
  t.ok(collections.size > 10);
  for (const [name, { declaration, field }] of collections) {
    const unique = Object.fromEntries(
      (declaration.unique ?? []).map((field) => [field, `${name} of ${userId}`]),
    );
    const more = {
      createdAt: 1,
      at: 1,
      body: '{"data":{}}',
      status: 'ended',
      expiresAt: 1,
      checkoutId: 'x',
      organizationId: 'x',
      rev: (declaration.numbers as string[] | undefined)?.includes('rev') ? 1 : 'x',
    };
    await store
      .collection<Document>(name, declaration)
      .insert({ ...more, ...unique, id: `${name}-1`, [field]: userId } as Document & typeof more);
  }
  t.match(await app.post('/user/delete', { password: PASSWORD }, { token }), { status: 200 });
  for (const [name, { declaration, field }] of collections)
    t.equal(
      await store.collection<Document>(name, declaration).count({ [field]: userId }),
      0,
      `${name}: context.accountData.add({ delete }) in the module that owns it`,
    );
});

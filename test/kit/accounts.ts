import { effectOf } from '../../src/core/ops/commit.js';
import type { Collection, Store } from '../../src/core/storage/collection.js';

/** Accounts of no product, and the mails to their owners, for domains that both products use. */

const accountCollection = (store: Store): Collection<{ id: string; signInRevision?: number }> =>
  store.collection('accounts', { numbers: ['signInRevision'] });

/** What the mails are about: `added 0`, with the revision before the change. */
export const noticeCollection = (store: Store): Collection<{ id: string }> => store.collection('notices');

export async function addAccount(store: Store, id: string): Promise<void> {
  noticeCollection(store);
  await accountCollection(store).insert({ id });
}

export const readAccountOf = (store: Store) => async (id: string) => {
  const accounts = accountCollection(store);
  const found = await accounts.findOne({ id });
  if (!found) return null;
  const { signInRevision } = found;
  const mail = (change: string) =>
    effectOf(noticeCollection(store).inserting({ id: `${change} ${signInRevision ?? 0}` }));
  return {
    nextRevision: accounts.changing(
      { id, signInRevision: signInRevision ?? null },
      { inc: { signInRevision: 1 } },
    ),
    factorMail: mail,
    passkeyMail: mail,
  };
};

/** What the owners of the accounts were told, in the order of the changes. */
export async function notices(store: Store): Promise<string[]> {
  const { items } = await noticeCollection(store).page({ sort: 'id', limit: 100 });
  return items.map(({ id }) => id.split(' ')[0] ?? '');
}

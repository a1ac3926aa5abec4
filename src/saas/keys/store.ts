import { toTimestamp, toTimestampOrNull } from '../../core/http/schemas.js';
import { actorOf } from '../../core/ops/audit.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { Collection, Store } from '../../core/storage/collection.js';
import { allOf } from '../../core/storage/pages.js';
import type { KeyView } from './schemas.js';

/** An API key. */
export interface KeyDocument {
  /** `key_…` */
  id: string;
  /** SHA-256 of the key. */
  hash: string;
  /** The user or the organization that it belongs to. */
  owner: string;
  /** The user who is responsible for it, and as whom it acts. */
  userId: string;
  name: string;
  scopes: string[];
  /** The addresses and networks from which it is accepted; absent: all. */
  networks?: string[];
  createdAt: number;
  /** Absent: it does not expire. */
  expiresAt?: number;
  /** The key that has replaced it in a rotation. */
  replacedBy?: string;
  lastUsedAt?: number;
  /** The address block of the last use. */
  lastUsedFrom?: string;
}

export type Keys = Collection<KeyDocument>;

export const keyCollection = (store: Store): Keys =>
  store.collection<KeyDocument>('api_keys', {
    unique: ['hash'],
    indexes: [['owner', 'createdAt'], ['userId', 'createdAt'], ['expiresAt']],
    fields: ['replacedBy'],
    numbers: ['createdAt', 'expiresAt'],
  });

export const toKeyView = (key: KeyDocument): KeyView => ({
  id: key.id,
  name: key.name,
  scopes: key.scopes,
  networks: key.networks ?? [],
  userId: key.userId,
  createdAt: toTimestamp(key.createdAt),
  expiresAt: toTimestampOrNull(key.expiresAt),
  replacedBy: key.replacedBy ?? null,
  lastUsedAt: toTimestampOrNull(key.lastUsedAt),
  lastUsedFrom: key.lastUsedFrom ?? null,
});

/** Also without the option: keys end with their owner, and do not outlive a change of the owner of an account. */
export function contributeKeys({ store, audit, clock, signInMethods, accountData }: ModuleContext): void {
  const keys = keyCollection(store);
  const of = (userId: string) => allOf(keys, { where: { userId }, sort: 'createdAt' });
  signInMethods.add('keys', {
    async removal(userId, source) {
      // Those that have expired are left to the deletion of the account, or to the purge.
      const isValid = ({ expiresAt }: KeyDocument) => expiresAt === undefined || expiresAt > clock.now();
      const removed = (await of(userId)).filter(isValid);
      const isRecorded = source !== undefined && removed.length > 0;
      return [
        ...removed.map(({ id }) => keys.deleting({ id, userId })),
        isRecorded ? audit.entry({ event: 'keys.ended', subject: userId, ...actorOf(source) }) : undefined,
      ];
    },
  });
  accountData.add({
    section: { name: 'apiKeys', read: async (userId) => (await of(userId)).map(toKeyView) },
    delete: (owner) => Promise.all([{ owner }, { userId: owner }].map((where) => keys.deleteMany(where))),
  });
}

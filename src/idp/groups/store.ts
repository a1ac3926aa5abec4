import type { Collection, Store } from '../../core/storage/collection.js';

/** A group of people and agents, which applications know by its name. */
export interface GroupDocument {
  /** `grp_…`: never reused, so that what is left of a removed group belongs to no other one. */
  id: string;
  /** What applications get; it never changes. */
  name: string;
  description?: string;
  createdAt: number;
  /** Changed with each member. */
  updatedAt: number;
}

/** Someone in a group. A group exists as long as its members count. */
export interface MemberDocument {
  /** The group and the member. */
  id: string;
  /** The ID of the group. */
  group: string;
  /** The `sub` of a principal, or `@` and an e-mail domain in ASCII: all people with a verified address there. */
  member: string;
  /** The handle of the principal, or the domain again. Neither changes. */
  handle: string;
  kind: 'agent' | 'human' | 'domain';
  createdAt: number;
}

export const groupCollection = (store: Store): Collection<GroupDocument> =>
  store.collection<GroupDocument>('groups', { unique: ['name'] });

export const memberCollection = (store: Store): Collection<MemberDocument> =>
  store.collection<MemberDocument>('group_members', { indexes: [['member'], ['group', 'handle']] });

import type { Collection, Store } from '../../core/storage/collection.js';

/** What an agent, the agents of a group, or every agent may do at a resource. Without one, an agent gets no token there. */
export interface PermissionDocument {
  /** The subject and the ID of the resource: there is one permission for both. */
  id: string;
  /** The `sub` of an agent, `group:` with the name of a group, or `*`. */
  subject: string;
  /** `res_…`, which is never reused: a resource that is registered again has no permissions. */
  resourceId: string;
  /** Its identifier, which never changes. */
  resource: string;
  scopes: string[];
  /** When it ends; absent for never. */
  until?: number;
  /** Networks from which tokens are requested, like `192.0.2.0/24`; absent for any. */
  networks?: string[];
  /** Access tokens that each agent gets in an hour; absent for any number. */
  tokensPerHour?: number;
  /** The agent acts for people there, who let it, and never for itself. */
  delegatedOnly?: true;
  /** The operator who last gave or changed it, or the address of the request: `cli` for a command. Absent in older ones. */
  givenBy?: string;
  createdAt: number;
  updatedAt: number;
  /** Incremented by every change, which is conditional on the value it read. */
  revision?: number;
}

/** Everyone who is an agent. */
export const EVERY_AGENT = '*';

export const subjectOfGroup = (name: string): string => `group:${name}`;

/** The name of the group that a subject is, or an owner; undefined for every other one. */
export const groupIn = (subject: string): string | undefined => /^group:(.*)$/s.exec(subject)?.[1];

export const permissionCollection = (store: Store): Collection<PermissionDocument> =>
  store.collection<PermissionDocument>('permissions', {
    indexes: [['subject'], ['resourceId']],
    numbers: ['revision'],
  });

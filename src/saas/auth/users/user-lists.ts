import { invalidFields } from '../../../core/kernel/errors.js';
import type { Where } from '../../../core/storage/collection.js';
import { readPage } from '../../../core/storage/pages.js';
import type { UserDocument, Users } from '../store.js';
import { type ManagedUser, type Matching, matching, type UserState } from './users.js';

/** The position in a list of users, and how many. */
export interface UserPageQuery {
  /** The `next` of the previous page; default: the beginning. */
  after?: string;
  /** 1 to 200; default 50. */
  limit?: number;
}

/** Which users a list contains: those to which every given condition applies. */
export interface UserFilter extends UserPageQuery {
  /** `unverified` refers to the address; default: any state. */
  state?: UserState | 'active';
  /**
   * The plan of their best subscription, as of its last change; `free` without one. It says nothing about access: granted plans
   * do not count, and the subscription may have ended since.
   */
  subscriptionPlan?: string;
  /** Unix time in milliseconds. */
  registeredSince?: number;
}

/** One page of users. */
export interface UserPage {
  /** Of this page. */
  users: ManagedUser[];
  /** The `after` of the next page; null at the end. */
  next: string | null;
}

/** Lists of users for the host. */
export type UserLists = ReturnType<typeof createUserLists>;

const MAX_LIMIT = 200;
const STATES = ['active', 'suspended', 'deleting', 'unverified'];

export function createUserLists(users: Users, toManagedUser: (user: UserDocument) => ManagedUser) {
  const read = async (query: Matching, { after, limit = 50 }: UserPageQuery): Promise<UserPage> => {
    if (!Number.isInteger(limit) || limit < 1 || limit > MAX_LIMIT)
      throw invalidFields({ path: 'limit', message: `must be a whole number from 1 to ${MAX_LIMIT}` });
    const { items, next } = await readPage(users, { ...query, after, limit });
    return { users: items.map(toManagedUser), next };
  };

  return {
    /** Lists users, the newest first (those of `suspended` and `deleting` by that time). @throws VALIDATION_ERROR */
    async list({
      state,
      subscriptionPlan: plan,
      registeredSince,
      after,
      limit,
      ...others
    }: UserFilter = {}): Promise<UserPage> {
      const [unknown] = Object.keys(others);
      // Without its condition, the list would contain every user.
      if (unknown !== undefined) throw invalidFields({ path: unknown, message: 'is not a condition' });
      if (state !== undefined && !STATES.includes(state))
        throw invalidFields({ path: 'state', message: `must be one of ${STATES.join(', ')}` });
      if (plan !== undefined && (typeof plan !== 'string' || plan === ''))
        throw invalidFields({ path: 'subscriptionPlan', message: 'must be the name of a plan' });
      if (registeredSince !== undefined && !(Number.isSafeInteger(registeredSince) && registeredSince >= 0))
        throw invalidFields({ path: 'registeredSince', message: 'must be Unix time in milliseconds' });
      const query = state === 'active' ? ACTIVE : matching(undefined, state);
      const where: Where<UserDocument> = {
        ...query.where,
        ...(plan !== undefined && { subscriptionPlan: plan }),
        ...(registeredSince !== undefined && { createdAt: { gte: registeredSince } }),
      };
      return read(
        { ...query, where },
        { ...(after !== undefined && { after }), ...(limit !== undefined && { limit }) },
      );
    },

    /**
     * Finds users by the beginning of their address, in any case, in the order of the addresses; or by their whole ID.
     * @throws VALIDATION_ERROR, also for an empty text
     */
    async search(text: string, page: UserPageQuery = {}): Promise<UserPage> {
      if (typeof text !== 'string' || !SEARCHED.test(text))
        throw invalidFields({ path: 'text', message: 'must be the beginning of an address, or an ID' });
      return read(matching(text, undefined), page);
    },
  };
}

const ACTIVE = { where: { suspendedAt: null, deletingAt: null }, sort: 'createdAt', desc: true } as const;

/** Printable ASCII, as in addresses. */
const SEARCHED = /^[\x21-\x7e]{1,254}$/;

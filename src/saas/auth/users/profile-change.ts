import type { User } from '../../../core/http/schemas.js';
import type { UserFieldsPatch } from '../../../core/http/user-metadata.js';
import type { Clock } from '../../../core/kernel/clock.js';
import { httpErrors } from '../../../core/kernel/errors.js';
import { type Audit, auditActor, changeDetail, type Operator } from '../../../core/ops/audit.js';
import { type CommitParts, decideAndCommit, type Effect } from '../../../core/ops/commit.js';
import type { EventOf } from '../../../core/ops/events.js';
import { applyChange } from '../../../core/storage/semantics.js';
import type { AuthEvents } from '../events.js';
import type { PresentUser, ProfileMark, UserDocument, Users } from '../store.js';
import type { UserFieldRules } from './fields.js';

/** What is absent stays as it is. */
export interface ProfileChange {
  name?: string | undefined;
  fields?: UserFieldsPatch | undefined;
}

export interface ProfileChangeDependencies {
  users: Users;
  presentUser: PresentUser;
  /** Absent without the option. */
  userFields?: UserFieldRules | undefined;
  commit: CommitParts;
  event: EventOf<AuthEvents>;
  audit: Audit;
  clock: Clock;
  profileMark: ProfileMark;
  /** In the commit of a new name, so that other systems receive it soon. */
  profileChanged: Effect;
}

const PROFILE = ['name', 'fields'] as const;

/** What the profile of a user becomes; only what differs is set or removed. */
function changeOf(before: UserDocument, { name, fields }: ProfileChange, deps: ProfileChangeDependencies) {
  const { userFields, profileMark } = deps;
  const after = {
    name: (name ?? before.name)?.trim() || undefined,
    fields: userFields ? userFields.change(before.fields, fields, 'user') : before.fields,
  };
  const changed = PROFILE.filter((field) => after[field] !== before[field]);
  const kept = changed.flatMap((field) => (after[field] ? [[field, after[field]]] : []));
  return {
    set: { ...(changed.includes('name') && profileMark()), ...Object.fromEntries(kept) },
    unset: changed.filter((field) => !after[field]),
    inc: { profileVersion: 1 },
    changed,
  };
}

/**
 * Changes the display name, of which an empty one removes it, and the fields that the user can write.
 * @param operator who does it instead of the user, for the audit
 * @throws UNAUTHENTICATED when the user has been deleted; VALIDATION_ERROR for the fields
 */
export const createChangeProfile =
  (deps: ProfileChangeDependencies) =>
  (id: string, given: ProfileChange, operator?: Operator): Promise<User> =>
    decideAndCommit(deps.commit, async () => {
      const { users, presentUser, audit, event } = deps;
      const before = await users.findOne({ id });
      if (!before || before.deletingAt !== undefined) throw httpErrors.UNAUTHENTICATED();
      const { profileVersion = null } = before;
      const { changed, ...change } = changeOf(before, given, deps);
      const after = applyChange(before, change);
      const result = presentUser(after);
      if (changed.length === 0) return { result };
      const detail = changeDetail({ name: before.name }, { name: after.name });
      const parts = [
        users.changing({ id, profileVersion, deletingAt: null }, change),
        await event('user.updated', { userId: id, user: result }),
        operator && audit.entry({ event: 'user.renamed', subject: id, ...auditActor(operator), detail }),
        changed.includes('name') ? deps.profileChanged : undefined,
      ];
      return { parts, result };
    });

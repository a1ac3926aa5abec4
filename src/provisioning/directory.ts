import type { Origin } from '../http/scope.js';
import type { Page } from '../storage/collection.js';
import { provisioningErrors } from './errors.js';
import { canonicalForm, isPossibleHandle } from './handles.js';
import { pageOf } from './pages.js';
import type { Dependencies } from './principals.js';
import type { PrincipalCollection, PrincipalDocument } from './store.js';

/** What the operator may see of principals and do to them: never a password, never a kind, never a handle. */
export interface PrincipalDirectory {
  /**
   * Ordered by handle.
   * @param prefix how their handles begin
   * @param after the `next` of the page before
   * @throws VALIDATION_ERROR when `after` is none
   */
  list(query: { prefix?: string | undefined; after?: string | undefined }): Promise<Page<PrincipalDocument>>;
  get(sub: string): Promise<PrincipalDocument | null>;
  findByHandle(handle: string): Promise<PrincipalDocument | null>;
  /** From now on it is as good as unknown, and so is its link; what it was given is worthless for good. `null`: unknown. @throws wrong_state */
  disable(sub: string, from: Origin): Promise<PrincipalDocument | null>;
  /** With the password it had; an invitation it had not accepted has to be made anew. `null`: unknown. @throws wrong_state */
  enable(sub: string, from: Origin): Promise<PrincipalDocument | null>;
  /** Removes an agent and keeps its handle taken. `null`: there is no such agent. */
  deleteAgent(sub: string, from: Origin): Promise<PrincipalDocument | null>;
}

/** Behind every handle that begins with the same characters, and part of none. */
const LAST = '\u{10ffff}';

export function createDirectory(
  principals: PrincipalCollection,
  { audit, clock }: Pick<Dependencies, 'audit' | 'clock'>,
): PrincipalDirectory {
  const get = async (sub: string): Promise<PrincipalDocument | null> =>
    /^u_[0-9a-f]{32}$/.test(sub) ? principals.findOne({ id: sub }) : null;

  return {
    list({ prefix, after }) {
      const from = prefix === undefined ? undefined : canonicalForm(prefix);
      return pageOf(
        principals,
        'handle',
        after,
        from === undefined ? undefined : { handle: { gte: from, lt: from + LAST } },
      );
    },

    get,
    async findByHandle(handle) {
      // What can be no handle may be text that no store can hold.
      return isPossibleHandle(handle) ? principals.findOne({ handle: canonicalForm(handle) }) : null;
    },

    async disable(sub, { ip }) {
      const found = await get(sub);
      if (!found || found.state === 'disabled') return found;
      const disabled = await principals.updateOne(
        { id: sub, state: { in: ['active', 'invited'] } },
        {
          set: { state: 'disabled', updatedAt: clock.now() },
          unset: ['linkHash', 'linkExpiresAt'],
          inc: { epoch: 1 },
        },
      );
      if (!disabled) throw provisioningErrors.wrong_state();
      await audit.record({ event: 'principal.disabled', subject: sub, ip });
      return disabled;
    },

    async enable(sub, { ip }) {
      const found = await get(sub);
      if (!found || found.state === 'active') return found;
      // Nothing gives a disabled principal a password, so what was read still holds when it is written.
      const hasPassword = found.passwordHash !== undefined || found.secretHash !== undefined;
      const enabled = await principals.updateOne(
        { id: sub, state: 'disabled' },
        { set: { state: hasPassword ? 'active' : 'invited', updatedAt: clock.now() } },
      );
      if (!enabled) throw provisioningErrors.wrong_state();
      await audit.record({ event: 'principal.enabled', subject: sub, ip });
      return enabled;
    },

    async deleteAgent(sub, { ip }) {
      if (!(await get(sub))) return null;
      const deleted = await principals.updateOne(
        { id: sub, kind: 'agent', state: { in: ['active', 'disabled'] } },
        {
          set: { state: 'deleted', updatedAt: clock.now() },
          unset: ['name', 'passwordHash', 'secretHash'],
          inc: { epoch: 1 },
        },
      );
      if (deleted) await audit.record({ event: 'agent.deleted', subject: sub, ip });
      return deleted;
    },
  };
}

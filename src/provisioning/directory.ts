import type { Origin } from '../http/scope.js';
import { UNANSWERED_LINK_FIELDS } from '../ops/used-links.js';
import type { Page } from '../storage/collection.js';
import { readPage } from '../storage/pages.js';
import { provisioningErrors } from './errors.js';
import { canonicalForm, isPossibleHandle } from './handles.js';
import type { Dependencies } from './principals.js';
import type { PrincipalCollection, PrincipalDocument } from './store.js';

/** Management of principals by the operator, who cannot change passwords, kinds or handles. */
export interface PrincipalDirectory {
  /**
   * Ordered by handle.
   * @param prefix of their handles
   * @param after the `next` of the previous page
   * @throws VALIDATION_ERROR when `after` is invalid
   */
  list(query: { prefix?: string | undefined; after?: string | undefined }): Promise<Page<PrincipalDocument>>;
  get(sub: string): Promise<PrincipalDocument | null>;
  /** Whether the principal is permanently deleted or never existed. */
  isDeleted(sub: string): Promise<boolean>;
  findByHandle(handle: string): Promise<PrincipalDocument | null>;
  /**
   * Treats the principal as unknown from now on, and revokes its link, codes, tokens and sessions permanently. `null`
   * if unknown.
   * @throws wrong_state
   */
  disable(sub: string, from: Origin): Promise<PrincipalDocument | null>;
  /**
   * Restores the principal with its password; an invitation that was not accepted must be repeated. `null` if unknown.
   * @throws wrong_state
   */
  enable(sub: string, from: Origin): Promise<PrincipalDocument | null>;
  /** Removes an agent and keeps its handle reserved. `null` if there is no such agent. */
  deleteAgent(sub: string, from: Origin): Promise<PrincipalDocument | null>;
}

/** Sorts after every handle with the same prefix, and is not part of any. */
const LAST_CHARACTER = '\u{10ffff}';

export function createDirectory(
  principals: PrincipalCollection,
  { audit, clock }: Pick<Dependencies, 'audit' | 'clock'>,
): PrincipalDirectory {
  const get = async (sub: string): Promise<PrincipalDocument | null> =>
    /^u_[0-9a-f]{32}$/.test(sub) ? principals.findOne({ id: sub }) : null;

  return {
    list({ prefix, after }) {
      const from = prefix === undefined ? undefined : canonicalForm(prefix);
      return readPage(principals, {
        sort: 'handle',
        after,
        ...(from !== undefined && { where: { handle: { gte: from, lt: from + LAST_CHARACTER } } }),
      });
    },

    get,

    async isDeleted(sub) {
      const principal = await get(sub);
      return principal === null || principal.state === 'deleted';
    },

    async findByHandle(handle) {
      // Other text is never looked up, because a store may be unable to represent it.
      return isPossibleHandle(handle) ? principals.findOne({ handle: canonicalForm(handle) }) : null;
    },

    async disable(sub, { ip }) {
      const found = await get(sub);
      if (!found || found.state === 'disabled') return found;
      const disabled = await principals.updateOne(
        { id: sub, state: { in: ['active', 'invited'] } },
        {
          set: { state: 'disabled', updatedAt: clock.now() },
          unset: ['linkHash', 'linkExpiresAt', ...UNANSWERED_LINK_FIELDS],
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
      // No operation gives a disabled principal a password, so the state read above is still current.
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

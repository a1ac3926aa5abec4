import type { RequestSource } from '../../core/http/routes.js';
import type { Clock } from '../../core/kernel/clock.js';
import { type Audit, actorOf, changeDetail } from '../../core/ops/audit.js';
import { UNANSWERED_LINK_FIELDS } from '../../core/ops/used-links.js';
import type { Estimate, Page } from '../../core/storage/collection.js';
import { readPage } from '../../core/storage/pages.js';
import { provisioningErrors } from './errors.js';
import { canonicalForm, isPossibleHandle } from './handles.js';
import {
  type EndSessions,
  type Kind,
  OPERATOR_FIELDS,
  PASSWORD_LINK_FIELDS,
  type PrincipalCollection,
  type PrincipalDocument,
  type PrincipalState,
  VERIFICATION_FIELDS,
} from './store.js';

export interface PrincipalQuery {
  /** The beginning of their handles. */
  prefix?: string | undefined;
  kind?: Kind | undefined;
  state?: PrincipalState | undefined;
  /** The `next` of the previous page. */
  after?: string | undefined;
  limit?: number;
}

/** Management of principals by the operator, who cannot change passwords, kinds or handles. */
export type PrincipalDirectory = ReturnType<typeof createDirectory>;

/** The fields to unset where a principal is disabled or deleted: its links, and its role as operator. */
const ENDING_FIELDS = [
  ...PASSWORD_LINK_FIELDS,
  ...VERIFICATION_FIELDS,
  ...UNANSWERED_LINK_FIELDS,
  ...OPERATOR_FIELDS,
];

/** Sorts after every handle with the same prefix, and is not part of any. */
const LAST_CHARACTER = '\u{10ffff}';

export function createDirectory(
  principals: PrincipalCollection,
  { endSessions, audit, clock }: { endSessions: EndSessions; audit: Pick<Audit, 'record'>; clock: Clock },
) {
  const get = async (sub: string): Promise<PrincipalDocument | null> =>
    /^u_[0-9a-f]{32}$/.test(sub) ? principals.findOne({ id: sub }) : null;

  const remove = async (
    sub: string,
    kind: Kind,
    source: RequestSource,
    unchanged: { state?: PrincipalState; epoch?: number | null } = {},
  ): Promise<PrincipalDocument | null> => {
    if (!(await get(sub))) return null;
    const deleted = await endSessions(sub, () =>
      principals.updateOne(
        { id: sub, kind, state: { in: ['active', 'disabled', 'invited'] }, ...unchanged },
        {
          set: { state: 'deleted', updatedAt: clock.now() },
          unset: [...(['name', 'passwordHash', 'secretHash', 'keys'] as const), ...ENDING_FIELDS],
          inc: { epoch: 1 },
        },
      ),
    );
    if (!deleted) return null;
    await audit.record({ event: `${kind}.deleted`, subject: sub, ...actorOf(source) });
    return deleted;
  };

  return {
    /**
     * Ordered by handle.
     * @throws VALIDATION_ERROR when `after` is invalid
     */
    list({ prefix, kind, state, after, limit }: PrincipalQuery): Promise<Page<PrincipalDocument>> {
      const from = prefix === undefined ? undefined : canonicalForm(prefix);
      const where = {
        ...(from !== undefined && { handle: { gte: from, lt: from + LAST_CHARACTER } }),
        ...(kind !== undefined && { kind }),
        ...(state !== undefined && { state }),
      };
      return readPage(principals, { sort: 'handle', after, where, ...(limit !== undefined && { limit }) });
    },

    estimate: (): Promise<Estimate> => principals.estimate(),

    get,

    /** Whether the principal is permanently deleted or never existed. */
    async isDeleted(sub: string): Promise<boolean> {
      const principal = await get(sub);
      return principal === null || principal.state === 'deleted';
    },

    async findByHandle(handle: string): Promise<PrincipalDocument | null> {
      // Other text is never looked up, because a store may be unable to represent it.
      return isPossibleHandle(handle) ? principals.findOne({ handle: canonicalForm(handle) }) : null;
    },

    /**
     * Treats the principal as unknown from now on, and revokes its link, codes, tokens, sessions and its role as operator
     * permanently. `null` if unknown.
     * @throws wrong_state
     */
    async disable(sub: string, source: RequestSource): Promise<PrincipalDocument | null> {
      const found = await get(sub);
      if (!found || found.state === 'disabled') return found;
      const disabled = await endSessions(sub, () =>
        principals.updateOne(
          { id: sub, state: { in: ['active', 'invited'] } },
          {
            set: { state: 'disabled', updatedAt: clock.now() },
            unset: ENDING_FIELDS,
            inc: { epoch: 1 },
          },
        ),
      );
      if (!disabled) throw provisioningErrors.wrong_state();
      await audit.record({
        event: 'principal.disabled',
        subject: sub,
        ...actorOf(source),
        detail: changeDetail({ state: found.state }, { state: 'disabled' }),
      });
      return disabled;
    },

    /**
     * Restores the principal with its password; an invitation that was not accepted must be repeated. `null` if unknown.
     * @throws wrong_state
     */
    async enable(sub: string, source: RequestSource): Promise<PrincipalDocument | null> {
      const found = await get(sub);
      if (!found || found.state === 'active') return found;
      // No operation gives a disabled principal a password, so the state read above is still current.
      const { kind, passwordHash, secretHash, passkeyOnly = false } = found;
      // Agents are never invited.
      const canSignIn =
        kind === 'agent' || passwordHash !== undefined || secretHash !== undefined || passkeyOnly;
      const enabled = await principals.updateOne(
        { id: sub, state: 'disabled' },
        { set: { state: canSignIn ? 'active' : 'invited', updatedAt: clock.now() } },
      );
      if (!enabled) throw provisioningErrors.wrong_state();
      await audit.record({
        event: 'principal.enabled',
        subject: sub,
        ...actorOf(source),
        detail: changeDetail({ state: 'disabled' }, { state: enabled.state }),
      });
      return enabled;
    },

    /** Removes an agent and keeps its handle reserved. `null` if there is no such agent. */
    deleteAgent: (sub: string, source: RequestSource): Promise<PrincipalDocument | null> =>
      remove(sub, 'agent', source),
    /** The same for a human, invited or not. */
    deleteHuman: (sub: string, source: RequestSource): Promise<PrincipalDocument | null> =>
      remove(sub, 'human', source),
    /** The same at the request of the human, unless the credentials have changed since `person` was read. */
    async deleteSelf(
      { id, epoch }: Pick<PrincipalDocument, 'id' | 'epoch'>,
      source: RequestSource,
    ): Promise<boolean> {
      return (await remove(id, 'human', source, { state: 'active', epoch: epoch ?? null })) !== null;
    },
  };
}

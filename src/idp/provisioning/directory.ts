import type { Origin } from '../../core/http/scope.js';
import { actorOf, changeDetail } from '../../core/ops/audit.js';
import { UNANSWERED_LINK_FIELDS } from '../../core/ops/used-links.js';
import type { Estimate, Page } from '../../core/storage/collection.js';
import { readPage } from '../../core/storage/pages.js';
import { provisioningErrors } from './errors.js';
import { canonicalForm, isPossibleHandle } from './handles.js';
import type { PersonMails } from './mails.js';
import type { PrincipalDependencies } from './principals.js';
import {
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
export interface PrincipalDirectory {
  /**
   * Ordered by handle.
   * @throws VALIDATION_ERROR when `after` is invalid
   */
  list(query: PrincipalQuery): Promise<Page<PrincipalDocument>>;
  estimate(): Promise<Estimate>;
  get(sub: string): Promise<PrincipalDocument | null>;
  /** Whether the principal is permanently deleted or never existed. */
  isDeleted(sub: string): Promise<boolean>;
  findByHandle(handle: string): Promise<PrincipalDocument | null>;
  /**
   * Treats the principal as unknown from now on, and revokes its link, codes, tokens, sessions and its role as operator
   * permanently. `null` if unknown.
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
  /** The same for a human, invited or not. */
  deleteHuman(sub: string, from: Origin): Promise<PrincipalDocument | null>;
  /** The same at the request of the human, unless the credentials have changed since `person` was read. */
  deleteSelf(person: Pick<PrincipalDocument, 'id' | 'epoch'>, from: Origin): Promise<boolean>;
}

export interface DirectoryDependencies
  extends Pick<PrincipalDependencies, 'endSessions' | 'audit' | 'clock'> {
  /** Absent without a mail server. */
  mails?: Pick<PersonMails, 'deleteAll'> | undefined;
}

/** Sorts after every handle with the same prefix, and is not part of any. */
const LAST_CHARACTER = '\u{10ffff}';

export function createDirectory(
  principals: PrincipalCollection,
  { mails, endSessions, audit, clock }: DirectoryDependencies,
): PrincipalDirectory {
  const get = async (sub: string): Promise<PrincipalDocument | null> =>
    /^u_[0-9a-f]{32}$/.test(sub) ? principals.findOne({ id: sub }) : null;

  const remove = async (
    sub: string,
    kind: Kind,
    from: Origin,
    unchanged: { state?: PrincipalState; epoch?: number | null } = {},
  ): Promise<PrincipalDocument | null> => {
    if (!(await get(sub))) return null;
    const deleted = await endSessions(sub, () =>
      principals.updateOne(
        { id: sub, kind, state: { in: ['active', 'disabled', 'invited'] }, ...unchanged },
        {
          set: { state: 'deleted', updatedAt: clock.now() },
          unset: [
            ...(['name', 'passwordHash', 'secretHash', 'keys'] as const),
            ...PASSWORD_LINK_FIELDS,
            ...VERIFICATION_FIELDS,
            ...UNANSWERED_LINK_FIELDS,
            ...OPERATOR_FIELDS,
          ],
          inc: { epoch: 1 },
        },
      ),
    );
    if (!deleted) return null;
    await audit.record({ event: `${kind}.deleted`, subject: sub, ...actorOf(from) });
    await mails?.deleteAll(sub);
    return deleted;
  };

  return {
    list({ prefix, kind, state, after, limit }) {
      const from = prefix === undefined ? undefined : canonicalForm(prefix);
      const where = {
        ...(from !== undefined && { handle: { gte: from, lt: from + LAST_CHARACTER } }),
        ...(kind !== undefined && { kind }),
        ...(state !== undefined && { state }),
      };
      return readPage(principals, { sort: 'handle', after, where, ...(limit !== undefined && { limit }) });
    },

    estimate: () => principals.estimate(),

    get,

    async isDeleted(sub) {
      const principal = await get(sub);
      return principal === null || principal.state === 'deleted';
    },

    async findByHandle(handle) {
      // Other text is never looked up, because a store may be unable to represent it.
      return isPossibleHandle(handle) ? principals.findOne({ handle: canonicalForm(handle) }) : null;
    },

    async disable(sub, from) {
      const found = await get(sub);
      if (!found || found.state === 'disabled') return found;
      const disabled = await endSessions(sub, () =>
        principals.updateOne(
          { id: sub, state: { in: ['active', 'invited'] } },
          {
            set: { state: 'disabled', updatedAt: clock.now() },
            unset: [
              ...PASSWORD_LINK_FIELDS,
              ...VERIFICATION_FIELDS,
              ...UNANSWERED_LINK_FIELDS,
              ...OPERATOR_FIELDS,
            ],
            inc: { epoch: 1 },
          },
        ),
      );
      if (!disabled) throw provisioningErrors.wrong_state();
      await audit.record({
        event: 'principal.disabled',
        subject: sub,
        ...actorOf(from),
        detail: changeDetail({ state: found.state }, { state: 'disabled' }),
      });
      return disabled;
    },

    async enable(sub, from) {
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
        ...actorOf(from),
        detail: changeDetail({ state: 'disabled' }, { state: enabled.state }),
      });
      return enabled;
    },

    deleteAgent: (sub, from) => remove(sub, 'agent', from),
    deleteHuman: (sub, from) => remove(sub, 'human', from),
    async deleteSelf({ id, epoch = null }, from) {
      return (await remove(id, 'human', from, { state: 'active', epoch })) !== null;
    },
  };
}

import type { RequestSource } from '../../core/http/routes.js';
import type { Clock } from '../../core/kernel/clock.js';
import { type Audit, actorOf } from '../../core/ops/audit.js';
import type { CommitParts } from '../../core/ops/commit.js';
import type { Page } from '../../core/storage/collection.js';
import { readPage } from '../../core/storage/pages.js';
import { applyChange } from '../../core/storage/semantics.js';
import { provisioningErrors } from './errors.js';
import { OPERATOR_FIELDS, type PrincipalCollection, type PrincipalDocument } from './store.js';

/**
 * The role of people who may use the console. It is a field of the principal, so that it ends in the same write that
 * disables or deletes the principal. Only commands on the host change it.
 */
export function createOperatorRoles(
  principals: PrincipalCollection,
  { commit, audit, clock }: { commit: CommitParts; audit: Pick<Audit, 'entry'>; clock: Clock },
) {
  return {
    /**
     * Makes an active human an operator. `null` if unknown.
     * @throws wrong_state for an agent, and for a human who is not active
     */
    async grant(sub: string, source: RequestSource): Promise<PrincipalDocument | null> {
      const found = await principals.findOne({ id: sub });
      if (!found) return null;
      const isActive = found.kind === 'human' && found.state === 'active';
      if (isActive && found.operatorSince !== undefined) return found;
      const grant = { set: { operatorSince: clock.now() } };
      const { committed } = await commit([
        principals.changing({ id: sub, kind: 'human', state: 'active', operatorSince: null }, grant),
        audit.entry({ event: 'operator.granted', subject: sub, ...actorOf(source) }),
      ]);
      if (!committed) throw provisioningErrors.wrong_state();
      return applyChange(found, grant);
    },

    /** Ends the role, and an invitation that grants it. `null` if unknown. */
    async revoke(sub: string, source: RequestSource): Promise<PrincipalDocument | null> {
      const found = await principals.findOne({ id: sub });
      if (!found || OPERATOR_FIELDS.every((field) => found[field] === undefined)) return found;
      const revocation = { unset: OPERATOR_FIELDS };
      const { committed } = await commit([
        principals.changing({ id: sub }, revocation),
        audit.entry({ event: 'operator.revoked', subject: sub, ...actorOf(source) }),
      ]);
      return committed ? applyChange(found, revocation) : null;
    },

    /** In the order in which the roles were granted. @throws VALIDATION_ERROR when `after` is invalid */
    list: (after?: string): Promise<Page<PrincipalDocument>> =>
      readPage(principals, { sort: 'operatorSince', where: { operatorSince: { gt: 0 } }, after }),
  };
}

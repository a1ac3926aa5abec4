import type { RequestSource } from '../../core/http/routes.js';
import type { Clock } from '../../core/kernel/clock.js';
import { type Audit, actorOf } from '../../core/ops/audit.js';
import type { Page } from '../../core/storage/collection.js';
import { readPage } from '../../core/storage/pages.js';
import { provisioningErrors } from './errors.js';
import { OPERATOR_FIELDS, type PrincipalCollection, type PrincipalDocument } from './store.js';

/**
 * The role of people who may use the console. It is a field of the principal, so that it ends in the same write that
 * disables or deletes the principal. Only commands on the host change it.
 */
export function createOperatorRoles(
  principals: PrincipalCollection,
  { audit, clock }: { audit: Pick<Audit, 'record'>; clock: Clock },
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
      const granted = await principals.updateOne(
        { id: sub, kind: 'human', state: 'active', operatorSince: null },
        { set: { operatorSince: clock.now() } },
      );
      if (!granted) throw provisioningErrors.wrong_state();
      await audit.record({ event: 'operator.granted', subject: sub, ...actorOf(source) });
      return granted;
    },

    /** Ends the role, and an invitation that grants it. `null` if unknown. */
    async revoke(sub: string, source: RequestSource): Promise<PrincipalDocument | null> {
      const found = await principals.findOne({ id: sub });
      if (!found || OPERATOR_FIELDS.every((field) => found[field] === undefined)) return found;
      const revoked = await principals.updateOne({ id: sub }, { unset: OPERATOR_FIELDS });
      if (revoked) await audit.record({ event: 'operator.revoked', subject: sub, ...actorOf(source) });
      return revoked;
    },

    /** In the order in which the roles were granted. @throws VALIDATION_ERROR when `after` is invalid */
    list: (after?: string): Promise<Page<PrincipalDocument>> =>
      readPage(principals, { sort: 'operatorSince', where: { operatorSince: { gt: 0 } }, after }),
  };
}

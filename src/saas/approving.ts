import { personOf, type RequestIdentity } from '../core/http/identity.js';
import type { Clock } from '../core/kernel/clock.js';
import type { ApprovalDetails } from '../resource-server/access-token.js';
import { requireRecent } from './auth/sign-in/recent-auth.js';
import type { SaasModules } from './modules.js';

/** Who has approved an action. */
export interface ActionApproval {
  /** The ID of the user. */
  by: string;
  /** The approval in the audit of the identity provider; absent if the person acts without an agent. */
  txn?: string | undefined;
}

/** The method of `request.saas`, which `Object.keys` and JSON do not show. */
export interface Approving {
  /**
   * Demands an approval of the person for one action: `await request.saas.approve({ type: 'payment', amount })`. The access token of
   * an agent must contain exactly these details, and is used up; a person with a session must have signed in as for
   * `requireRecentAuth`.
   * @throws AppError APPROVAL_REQUIRED, whose challenge has the `authorization_details` that the agent asks the identity provider for;
   * REAUTHENTICATION_REQUIRED; FORBIDDEN for API keys
   */
  approve(details: ApprovalDetails): Promise<ActionApproval>;
}

export type WithApproving = ReturnType<typeof createWithApproving>;

/** Adds the method to what a guard has found. Hosts return and compare `request.saas`, so it is not enumerable. */
export const createWithApproving =
  ({ agents }: Pick<SaasModules, 'agents'>, clock: Clock) =>
  <T extends RequestIdentity>(identity: T): T & Approving => {
    const approve = async (details: ApprovalDetails): Promise<ActionApproval> => {
      if (agents && identity.client !== undefined) return agents.access.approve(identity, details);
      const person = personOf(identity);
      requireRecent(person, {}, clock);
      return { by: person.user.id };
    };
    return Object.defineProperty(identity, 'approve', { value: approve }) as T & Approving;
  };

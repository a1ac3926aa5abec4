import { toTimestamp } from '../../core/http/schemas.js';
import { type ErrorDetail, httpErrors } from '../../core/kernel/errors.js';
import { auditActor, type Operator } from '../../core/ops/audit.js';
import type { Effect } from '../../core/ops/commit.js';
import type { BillingContext } from './context.js';
import { NO_SUBSCRIPTION } from './entitlement.js';
import { ownerNotFound, type PlanGrant } from './owners.js';
import { type KnownPlans, UNKNOWN_PLAN } from './plans/plans.js';

/** Plans that the operator gives to users, with or without a payment provider. */
export type Grants = ReturnType<typeof createGrants>;

/** A plan that the operator or the host gives to a user. */
export interface GivenPlan {
  /** Its name, of at most 100 letters, digits, spaces, dots and hyphens. */
  plan: string;
  /** Unix time in milliseconds, in the future. Default: until it is revoked. */
  until?: number;
}

/** As in BILLING_PRICES. */
const PLAN = /^[\w .-]{1,100}$/;

export function createGrants({ owners, plans, audit, commit, clock }: BillingContext) {
  const find = async (ownerId: string) => {
    const user = await owners.find(ownerId);
    if (!user) throw ownerNotFound(ownerId);
    return user;
  };

  const write = async (ownerId: string, grant: PlanGrant | null, record: Effect) => {
    const { committed } = await commit([owners.granting(ownerId, grant), record]);
    if (!committed) throw ownerNotFound(ownerId);
  };

  return {
    /** Replaces an earlier grant. @throws VALIDATION_ERROR, NOT_FOUND */
    async grant(ownerId: string, given: GivenPlan, operator?: Operator) {
      const now = clock.now();
      const details = problemsOf(given, now, plans.names);
      if (details.length > 0) throw httpErrors.VALIDATION_ERROR({ details });
      const { plan, until } = given;
      const { grant: before } = await find(ownerId);
      const previous = before === undefined ? '' : `, before: ${describe(before)}`;
      const detail = describe(given) + previous;
      const record = audit.entry({
        event: 'plan.granted',
        subject: ownerId,
        ...auditActor(operator),
        detail,
      });
      await write(ownerId, { plan, since: now, ...(until !== undefined && { until }) }, record);
    },

    /** Does nothing without a grant. @throws NOT_FOUND */
    async revoke(ownerId: string, operator?: Operator) {
      const { grant } = await find(ownerId);
      if (!grant) return;
      const by = auditActor(operator);
      const record = audit.entry({ event: 'plan.revoked', subject: ownerId, ...by, detail: describe(grant) });
      await write(ownerId, null, record);
    },
  };
}

const describe = ({ plan, until }: GivenPlan) =>
  until === undefined ? plan : `${plan} until ${toTimestamp(until)}`;

/** Validates at run time, because callers may not use TypeScript. */
function problemsOf(
  { plan, until }: { plan?: unknown; until?: unknown },
  now: number,
  names: KnownPlans['names'],
): ErrorDetail[] {
  const problems: ErrorDetail[] = [];
  const isPlan = typeof plan === 'string' && PLAN.test(plan) && plan.trim() === plan;
  if (!isPlan) {
    problems.push({
      path: 'plan',
      message: 'must be the name of a plan: letters, digits, spaces, dots and hyphens, as in pro',
    });
  } else if (plan === NO_SUBSCRIPTION.plan || plan === UNKNOWN_PLAN) {
    problems.push({ path: 'plan', message: `must not be ${plan}, which does not grant access` });
  } else if (names && !names.has(plan)) {
    const known = [...names].join(', ') || 'none';
    problems.push({ path: 'plan', message: `must be one of the plans of the option billing: ${known}` });
  }
  const isTime = Number.isSafeInteger(until) && (until as number) <= MAX_DATE_MS;
  if (until !== undefined && !(isTime && (until as number) > now)) {
    problems.push({ path: 'until', message: 'must be a time in the future, as Unix time in milliseconds' });
  }
  return problems;
}

/** The latest time that a Date can represent. */
const MAX_DATE_MS = 8_640_000_000_000_000;

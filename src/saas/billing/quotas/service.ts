import { toTimestampOrNull } from '../../../core/http/schemas.js';
import { invalidFields } from '../../../core/kernel/errors.js';
import { newId, sha256 } from '../../../core/kernel/secrets.js';
import { allOf } from '../../../core/storage/pages.js';
import type { BillingContext, CommitPart } from '../context.js';
import { ownerNotFound } from '../owners.js';
import type { QuotaView } from '../schemas.js';
import { usageReport } from '../usage/reports.js';
import { type QuotaRule, quotaRule } from './rules.js';
import type { QuotaDocument } from './store.js';

/**
 * Limits that count: what a user has used of a limit, and what is left. Each use is one conditional write, so that parallel requests in
 * several processes never use more than the limit.
 */
export type Quotas = ReturnType<typeof createQuotas>;

/** The result of a use. */
export interface Consumption extends QuotaView {
  /** Whether it was counted. */
  allowed: boolean;
}

const idOf = (ownerId: string, name: string) => `${ownerId}:${name}`;

export function createQuotas(context: BillingContext) {
  const { quotas, credits, owners, plans, usage, pastDue, counts } = context;
  const { tryCommit, commitForOwner, clock, random } = context;

  const find = async (ownerId: string) => {
    const user = await owners.find(ownerId);
    if (!user || user.isBeingDeleted) throw ownerNotFound(ownerId);
    return { ...user, held: user.held.filter(counts) };
  };

  const ruleOf = async (ownerId: string, name: string): Promise<QuotaRule> => {
    const rule = quotaRule(name, await find(ownerId), { plans, pastDue, now: clock.now() });
    if (rule) return rule;
    const known = [...plans.limits].join(', ') || 'none';
    throw invalidFields({
      path: 'name',
      message: `must be one of the limits of the option billing: ${known}`,
    });
  };

  /** What a user has used in the period of a rule. A later period than that of the rule goes on: the user changed to another plan in it. */
  const usedIn = (stored: QuotaDocument | null, { start }: QuotaRule): number =>
    stored && stored.start >= start ? stored.used : 0;

  const view = (name: string, rule: QuotaRule, stored: QuotaDocument | null): QuotaView => {
    const [used, credits] = [usedIn(stored, rule), stored?.credits ?? 0];
    const isUnlimited = !Number.isFinite(rule.limit);
    return {
      name,
      limit: isUnlimited ? null : rule.limit,
      used,
      credits,
      left: isUnlimited ? null : Math.max(0, rule.limit - used) + credits,
      resetsAt: toTimestampOrNull(rule.resetsAt),
    };
  };

  /** Counts a use above what is left in the period, from what is stored. Null if a concurrent write came first. */
  const exceed = async (
    stored: QuotaDocument,
    rule: QuotaRule,
    quantity: number,
  ): Promise<QuotaDocument | null> => {
    const { id, ownerId, used, credits: left } = stored;
    const period = Math.max(stored.start, rule.start);
    const before = usedIn(stored, rule);
    const rest = Math.max(0, rule.limit - before);
    const isCredit = left >= quantity - rest;
    const after = {
      start: period,
      used: before + (isCredit ? Math.min(rest, quantity) : quantity),
      credits: isCredit ? left - Math.max(0, quantity - rest) : left,
    };
    const change = quotas.changing({ id, start: stored.start, used, credits: left }, { set: after });
    const parts: CommitPart[] = [change];
    if (!isCredit && rule.overuse === 'billed' && rule.meter !== undefined) {
      const key = newId('quo', clock, random);
      parts.push(usage.inserting(usageReport(ownerId, rule.meter, quantity - rest, key, clock.now())));
    }
    return (await tryCommit(parts)) ? { ...stored, ...after } : null;
  };

  /** The writes that add credits, for the commit of their purchase, which locks the user. Empty if they were added before. */
  const crediting = async (
    ownerId: string,
    added: Readonly<Record<string, number>>,
    key: string,
  ): Promise<CommitPart[]> => {
    const parts = await Promise.all(
      Object.entries(added).map(async ([name, quantity]): Promise<CommitPart[]> => {
        const id = idOf(ownerId, name);
        const credit = `cre_${sha256(JSON.stringify([ownerId, name, key]))}`;
        if (await credits.findOne({ id: credit })) return [];
        const stored = await quotas.findOne({ id });
        return [
          credits.inserting({ id: credit, ownerId, name, quantity, at: clock.now() }),
          stored
            ? quotas.changing({ id }, { inc: { credits: quantity } })
            : quotas.inserting({ id, ownerId, name, start: 0, used: 0, credits: quantity }),
        ];
      }),
    );
    return parts.flat();
  };

  return {
    /**
     * Uses a part of a limit of the option `billing`, if it is left: of the period first, then of the credits. With `overuse` allowed or
     * billed, more than the limit can be used.
     * @throws VALIDATION_ERROR for an unknown limit; NOT_FOUND if there is no such user
     */
    async consume(ownerId: string, name: string, quantity: number = 1): Promise<Consumption> {
      requireQuantity(quantity);
      const id = idOf(ownerId, name);
      for (;;) {
        const rule = await ruleOf(ownerId, name);
        const { limit, start, overuse } = rule;
        const isInPeriod = { id, start: { gte: start } };
        const within = Number.isFinite(limit) ? { used: { lte: limit - quantity } } : {};
        const counted =
          quantity <= limit &&
          (await quotas.updateOne({ ...isInPeriod, ...within }, { inc: { used: quantity } }));
        if (counted) return { allowed: true, ...view(name, rule, counted) };
        const stored = await quotas.findOne({ id });
        const present = view(name, rule, stored);
        if (present.left !== null && quantity > present.left && overuse === 'refused')
          return { allowed: false, ...present };
        const next = stored && (await exceed(stored, rule, quantity));
        if (next) return { allowed: true, ...view(name, rule, next) };
        const empty = { id, ownerId, name, start, used: 0, credits: 0 };
        if (!stored) await tryCommit([quotas.inserting(empty), owners.locking({ id: ownerId })]);
      }
    },

    /** Gives back what was used, for example when a project is deleted; never below 0. @throws as `consume` */
    async release(ownerId: string, name: string, quantity: number = 1): Promise<QuotaView> {
      requireQuantity(quantity);
      const id = idOf(ownerId, name);
      const rule = await ruleOf(ownerId, name);
      for (;;) {
        const stored = await quotas.findOne({ id });
        const used = usedIn(stored, rule);
        if (!stored || used === 0) return view(name, rule, stored);
        const given = Math.min(used, quantity);
        const where = { id, start: stored.start, used: { gte: given } };
        const changed = await quotas.updateOne(where, { inc: { used: -given } });
        if (changed) return view(name, rule, changed);
      }
    },

    /**
     * Adds credits, which are used when the limit of the period is, and remain after it. The same user, name and key count once.
     * @param key identifies the credits, for example the ID of a payment
     * @throws as `consume`
     */
    async addCredits(ownerId: string, name: string, quantity: number, key: string): Promise<QuotaView> {
      requireQuantity(quantity);
      if (typeof key !== 'string' || key === '')
        throw invalidFields({ path: 'key', message: 'must be a text' });
      const rule = await ruleOf(ownerId, name);
      await commitForOwner(ownerId, async (user) => {
        const parts = await crediting(ownerId, { [name]: quantity }, key);
        return parts.length > 0 ? [...parts, owners.locking(user)] : null;
      });
      // The account may have been deleted meanwhile.
      await find(ownerId);
      return view(name, rule, await quotas.findOne({ id: idOf(ownerId, name) }));
    },

    crediting,

    /** Every limit of the option `billing` with what a user has used. @throws NOT_FOUND */
    async list(ownerId: string): Promise<QuotaView[]> {
      const user = await owners.find(ownerId);
      if (!user) throw ownerNotFound(ownerId);
      const stored = await allOf(quotas, { where: { ownerId }, sort: 'ownerId' });
      return [...plans.limits].flatMap((limit) => {
        const rule = quotaRule(limit, user, { plans, pastDue, now: clock.now() });
        return rule ? [view(limit, rule, stored.find(({ name }) => name === limit) ?? null)] : [];
      });
    },

    async deleteAll(ownerId: string): Promise<void> {
      await quotas.deleteMany({ ownerId });
      await credits.deleteMany({ ownerId });
    },
  };
}

function requireQuantity(quantity: unknown): void {
  if (!Number.isSafeInteger(quantity) || (quantity as number) < 1)
    throw invalidFields({ path: 'quantity', message: 'must be a whole number, 1 or more' });
}

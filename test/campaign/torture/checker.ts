/** Compares a history with the model. Pure: `test/campaign/torture/checker.test.ts`. */
import type { Operation, Rule } from './history.js';
import { linearize } from './linearize.js';

export interface Violation {
  /** A sentence. */
  problem: string;
  rule: Rule;
  key: string;
  operations: Operation[];
}

/**
 * How long a client that repeats a refresh without a definite answer is protected: the 30 seconds of the products, less the
 * clock differences and delays that the campaign itself causes.
 */
export const PROTECTED_MS = 15_000;

type Check = (operations: Operation[]) => { problem: string; operations: Operation[] } | null;

const CHECKS: Record<Rule, Check> = {
  /** Reads and writes of one value take effect one after the other, each between its request and its response. */
  register(operations) {
    const stuck = linearize(operations);
    return (
      stuck && { problem: 'the reads and writes have no order that explains all of them', operations: stuck }
    );
  },

  /** A thing is accepted once. */
  once(operations) {
    const accepted = operations.filter(({ outcome }) => outcome === 'ok');
    return accepted.length > 1
      ? { problem: `accepted ${accepted.length} times`, operations: accepted }
      : null;
  },

  /** A refresh token has one successor. */
  successor(operations) {
    const accepted = operations.filter(({ outcome }) => outcome === 'ok');
    const successors = new Set(accepted.map(({ value }) => value));
    return successors.size > 1 ? { problem: 'one token has two successors', operations: accepted } : null;
  },

  /** A token that was replaced long ago is not accepted, nor what belongs to it afterwards. */
  'stale-token'(operations) {
    const accepted = operations.filter(({ outcome }) => outcome === 'ok');
    return accepted.length > 0
      ? { problem: 'a used or revoked token was accepted', operations: accepted }
      : null;
  },

  /** What was acknowledged is found by every later request. */
  durable(operations) {
    const created = operations.filter(({ kind, outcome }) => kind === 'write' && outcome === 'ok');
    const first = Math.min(...created.map(({ end }) => end));
    const missed = operations.filter(
      ({ kind, outcome, start }) => kind === 'read' && outcome === 'refused' && start > first,
    );
    return missed.length > 0
      ? { problem: 'an acknowledged write was lost', operations: [...created, ...missed] }
      : null;
  },

  /** An event of the payment provider is processed once; its other deliveries are duplicates. */
  delivery(operations) {
    const processed = operations.filter(({ outcome, value }) => outcome === 'ok' && value === 'processed');
    return processed.length > 1
      ? { problem: `an event was processed ${processed.length} times`, operations: processed }
      : null;
  },

  /** A client that only repeats what was not answered keeps its session. */
  honest(operations) {
    const refused = operations.filter(
      ({ outcome, since = 0, end }) => outcome === 'refused' && end - since <= PROTECTED_MS,
    );
    return refused.length > 0
      ? { problem: 'the session of an honest client was ended', operations: operations.slice(-8) }
      : null;
  },

  /** The state in the end. */
  final(operations) {
    const wrong = operations.filter(({ outcome, value, expected }) => outcome !== 'ok' || value !== expected);
    return wrong.length > 0
      ? { problem: `the final state is not ${wrong[0]?.expected}`, operations: wrong }
      : null;
  },

  probe: () => null,
};

/** The violations of a history, and every answer that reports a defect by itself. */
export function check(operations: readonly Operation[]): Violation[] {
  const groups = new Map<string, Operation[]>();
  for (const operation of operations) {
    const name = `${operation.rule} ${operation.key}`;
    const group = groups.get(name);
    if (group) group.push(operation);
    else groups.set(name, [operation]);
  }
  const violations: Violation[] = [];
  for (const group of groups.values()) {
    const { rule, key } = group[0] as Operation;
    const found = CHECKS[rule](group);
    if (found) violations.push({ rule, key, ...found });
    const internal = group.filter(({ detail }) => detail.startsWith('500'));
    if (internal.length > 0)
      violations.push({ rule, key, problem: 'an internal error', operations: internal });
  }
  return violations;
}

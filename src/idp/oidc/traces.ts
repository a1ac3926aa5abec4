import type { AuditRecord } from '../../core/ops/audit.js';

/** What audit records say about the tokens of an agent, as JSON in their detail: who let it, for whom, and where. */
export interface Trace {
  /** The grant, as in the tokens. */
  txn: string;
  /** The application that got the token; an agent may be its own. */
  client: string;
  agent?: string;
  /** Who answers for the agent. Absent: the operators. */
  owner?: string;
  /** For whom it acts, and what let it. Absent if it acts for itself. */
  person?: string;
  delegation?: string;
  /** The agents that have handed the token on, the last one first. */
  chain?: readonly string[];
  /** The identifier of the API. */
  resource?: string;
  scopes?: readonly string[];
  /** When the delegation that is given ends by itself, in ISO 8601. */
  until?: string;
  /** The permissions of the agent that allow it. */
  permissions?: readonly string[];
}

/** The part of a record about what an agent did, or what was done to its tokens. */
export const traced = (
  trace: Trace,
  acts = false,
): Pick<AuditRecord, 'subject' | 'actor'> & { txn: string; detail: string } => {
  const { txn, person, agent, client, delegation } = trace;
  const subject = person ?? agent;
  return {
    ...(subject !== undefined && { subject }),
    ...(acts && person && agent && { actor: { client, sub: agent, ...(delegation && { delegation }) } }),
    txn,
    detail: JSON.stringify(trace),
  };
};

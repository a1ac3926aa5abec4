import type { RequestSource } from '../../core/http/routes.js';
import type { Clock } from '../../core/kernel/clock.js';
import { type ErrorDetail, invalidFields } from '../../core/kernel/errors.js';
import { type PublicJwk, readJwkSet } from '../../core/kernel/public-jwk.js';
import { newId, type Random } from '../../core/kernel/secrets.js';
import type { ChangeAgent } from './agent-keys.js';
import type { PrincipalDocument, WorkloadRule } from './store.js';

/** Rules of one agent. */
export const MAX_WORKLOAD_RULES = 10;

const MAX_TEXT_LENGTH = 512;
const MAX_CLAIMS = 10;

export interface WorkloadInput {
  issuer: string;
  subject: string;
  audience?: string | undefined;
  claims?: Readonly<Record<string, string>> | undefined;
  /** The keys of an issuer that cannot be reached, as a JWK Set. */
  jwks?: unknown;
}

export interface AgentWorkloadDependencies {
  clock: Clock;
  random: Random;
  change: ChangeAgent;
  /** Why the issuer cannot be trusted, as the end of a sentence. */
  issuerProblem(issuer: string): string | undefined;
}

/**
 * Which workloads elsewhere are an agent: jobs, pods and machines with a token of their platform instead of a secret. No server loads it,
 * as with keys: a stolen admin token must not give access to an existing agent.
 */
export function createAgentWorkloads({ clock, random, change, issuerProblem }: AgentWorkloadDependencies) {
  /** @throws VALIDATION_ERROR naming every problem */
  const read = ({ issuer, subject, audience, claims = {}, jwks }: WorkloadInput) => {
    const keys = jwks === undefined ? undefined : readIssuerKeys(jwks);
    const problems: Record<string, string | undefined> = {
      issuer: issuerProblem(issuer),
      subject: subjectProblem(subject),
      audience: audience === undefined || isText(audience) ? undefined : TEXT,
      claim:
        Object.keys(claims).length > MAX_CLAIMS
          ? `must be given at most ${MAX_CLAIMS} times`
          : Object.entries(claims).flat().every(isText)
            ? undefined
            : TEXT,
      jwks: keys && 'problem' in keys ? keys.problem : undefined,
    };
    const details = Object.entries(problems).flatMap(([path, message]): ErrorDetail[] =>
      message === undefined ? [] : [{ path, message }],
    );
    if (details.length > 0) throw invalidFields(...details);
    return {
      issuer,
      subject,
      ...(audience !== undefined && { audience }),
      ...(Object.keys(claims).length > 0 && { claims: { ...claims } }),
      ...(keys && 'keys' in keys && { jwks: keys.keys }),
    };
  };

  return {
    /** Returns `null` if it is no agent, or was deleted. @throws VALIDATION_ERROR naming every problem */
    async add(
      { id }: PrincipalDocument,
      input: WorkloadInput,
      source: RequestSource,
    ): Promise<WorkloadRule | null> {
      const rule = { id: newId('wlr_', clock, random), ...read(input), addedAt: clock.now() };
      const { jwks, addedAt, ...audited } = rule;
      return change(id, { event: 'agent.trust_added', detail: JSON.stringify(audited) }, source, (agent) => {
        const { workloads = [] } = agent;
        if (workloads.length >= MAX_WORKLOAD_RULES)
          throw invalidFields({
            path: 'issuer',
            message: `would be in one of more than ${MAX_WORKLOAD_RULES} rules`,
          });
        return {
          set: { workloads: [...workloads, rule], workloadRules: workloads.length + 1 },
          result: rule,
        };
      });
    },

    /** Removes a rule and revokes everything that was issued to the agent. `null` if there is no such rule. */
    remove: (
      { id }: PrincipalDocument,
      ruleId: string,
      source: RequestSource,
    ): Promise<WorkloadRule | null> =>
      change(id, { event: 'agent.trust_removed', detail: ruleId, isRemoval: true }, source, (agent) => {
        const { workloads = [] } = agent;
        const result = workloads.find((known) => known.id === ruleId);
        const left = workloads.filter((known) => known !== result);
        return result ? { set: { workloads: left, workloadRules: left.length }, result } : null;
      }),
  };
}

const TEXT = `must be a text of 1 to ${MAX_TEXT_LENGTH} printable characters`;

const isText = (text: string): boolean =>
  text.length <= MAX_TEXT_LENGTH && /^[^\p{C}\p{Z}](?:[^\p{C}]*[^\p{C}\p{Z}])?$/u.test(text);

/** At platforms that many tenants share, the first part only says what kind of workload it is, and the second one whose. */
const FIXED_START = /^[^/:*]+[/:]+[^/:*]+[/:]/;

function subjectProblem(subject: string): string | undefined {
  if (!isText(subject)) return TEXT;
  return !subject.includes('*') || FIXED_START.test(subject)
    ? undefined
    : 'must have two whole parts before the first *, like repo:acme/*: otherwise it would match workloads of others';
}

/** SPIFFE names another use for its keys of tokens. */
function readIssuerKeys(value: unknown): { keys: PublicJwk[] } | { problem: string } {
  const { keys } = (value ?? {}) as { keys?: unknown };
  if (!Array.isArray(keys)) return readJwkSet(value, true);
  const known = keys.map((key: { use?: unknown } | null) =>
    key?.use === 'jwt-svid' ? { ...key, use: 'sig' } : key,
  );
  return readJwkSet({ keys: known }, true);
}

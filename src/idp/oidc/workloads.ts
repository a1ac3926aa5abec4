import { decodeJwt, decodeProtectedHeader, type JWTPayload } from 'jose';
import { HOUR, SECOND, toSeconds } from '../../core/kernel/clock.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { WorkloadRule } from '../provisioning/store.js';
import { MAX_LENGTH, TOLERANCE_SECONDS } from './client-assertion.js';
import type { Directory, Principal } from './directory.js';
import { type IssuerDependencies, verifyByIssuer } from './identity-assertions/key-set.js';

/**
 * Tokens that platforms give to the jobs, pods and machines which run there, as proofs of an agent (RFC 7523): the rules of the
 * agent say which. Unlike an assertion that an agent makes itself, they can be used again until they expire.
 */
export type Workloads = ReturnType<typeof createWorkloads>;

const MAX_LIFETIME_SECONDS = (24 * HOUR) / SECOND;

/** `typ` of such tokens, JOSE with SPIFFE. Those of other kinds are refused (RFC 8725 §3.11). */
const TYPES: readonly unknown[] = [undefined, 'JWT', 'jwt', 'JOSE'];

/** What strangers have sent, as the audit and the log show it. */
const MAX_SHOWN_LENGTH = 200;

export interface WorkloadDependencies extends IssuerDependencies, Pick<ModuleContext, 'audit' | 'log'> {
  directory: Pick<Directory, 'agentsWithRules'>;
  issuer(): string;
}

export function createWorkloads(deps: WorkloadDependencies) {
  const { directory, audit, log, clock, issuer } = deps;

  /** Only operators learn the reason. */
  const refuse = async (reason: string, ip: string, agent?: string): Promise<false> => {
    log.info({ agent, reason, ip }, 'a token of a workload was refused');
    const about = { ...(agent !== undefined && { subject: agent }), ip, detail: reason };
    await audit.recordFailure({ event: 'agent.workload_refused', ...about });
    return false;
  };

  const problemOf = async (rule: WorkloadRule, claims: JWTPayload, assertion: string, ip: string) =>
    mismatchOf(rule, claims, issuer()) ??
    timeProblemOf(claims, toSeconds(clock.now())) ??
    (await verifyByIssuer(assertion, rule, ip, deps)).problem ??
    null;

  return {
    /** Whether a rule of the agent accepts the token. @throws RATE_LIMITED */
    async verify({ id, workloads = [] }: Principal, assertion: string, ip: string): Promise<boolean> {
      const claims = readUnverified(assertion);
      if (!claims) return refuse('it is no token of a workload', ip, id);
      const problems: string[] = [];
      for (const rule of workloads) {
        const problem = await problemOf(rule, claims, assertion, ip);
        if (problem === null) {
          const detail = `${rule.id} ${shown(claims)}`;
          await audit.record({ event: 'agent.workload_accepted', subject: id, ip, detail });
          return true;
        }
        problems.push(`${rule.id} ${problem}`);
      }
      const reason = workloads.length === 0 ? 'the agent has no rule' : problems.join(', ');
      return refuse(`${shown(claims)}: ${reason}`, ip, id);
    },

    /** The `sub` of the one agent that a rule allows to be this workload; the token is not verified. */
    async agentOf(assertion: string, ip: string): Promise<string | undefined> {
      const claims = readUnverified(assertion);
      const agents = claims
        ? (await directory.agentsWithRules()).filter(({ workloads = [] }) =>
            workloads.some((rule) => mismatchOf(rule, claims, issuer()) === null),
          )
        : [];
      if (agents.length === 1) return agents[0]?.id;
      const reason =
        agents.length === 0 ? 'no rule matches' : 'rules of several agents match: send client_id';
      await refuse(claims ? `${shown(claims)}: ${reason}` : 'it is no token of a workload', ip);
      return undefined;
    },

    /** Whether any agent has a rule. */
    inUse: async (): Promise<boolean> => (await directory.agentsWithRules()).length > 0,
  };
}

function readUnverified(assertion: string): JWTPayload | null {
  if (assertion.length > MAX_LENGTH) return null;
  try {
    return TYPES.includes(decodeProtectedHeader(assertion).typ) ? decodeJwt(assertion) : null;
  } catch {
    return null;
  }
}

const shown = ({ iss, sub }: JWTPayload): string =>
  [iss, sub]
    .map((text) =>
      String(text)
        .replace(/[\p{C}\p{Z}]+/gu, ' ')
        .slice(0, MAX_SHOWN_LENGTH),
    )
    .join(' ');

/** What of the token the rule does not allow; `null` if it allows everything. */
function mismatchOf(
  { issuer, audience, subject, claims: required = {} }: WorkloadRule,
  claims: JWTPayload,
  ownIssuer: string,
): string | null {
  if (claims.iss !== issuer) return 'issuer';
  if (![claims.aud].flat().includes(audience ?? ownIssuer)) return 'audience';
  if (typeof claims.sub !== 'string' || !matches(subject, claims.sub)) return 'subject';
  const wrong = Object.entries(required).find(([name, value]) => !isValue(claims[name], value));
  return wrong ? `claim ${wrong[0]}` : null;
}

const isValue = (claim: unknown, value: string): boolean =>
  ['string', 'number', 'boolean'].includes(typeof claim) && String(claim) === value;

/** Whether the whole text has the form, in which each `*` stands for any text. In linear time, unlike a regular expression. */
function matches(form: string, text: string): boolean {
  const [first = '', ...parts] = form.split('*');
  const last = parts.pop();
  if (last === undefined) return form === text;
  if (!text.startsWith(first)) return false;
  let end = first.length;
  for (const part of parts) {
    const start = text.indexOf(part, end);
    if (start === -1) return false;
    end = start + part.length;
  }
  return text.length - last.length >= end && text.endsWith(last);
}

function timeProblemOf({ exp, iat }: JWTPayload, now: number): string | null {
  if (typeof exp !== 'number' || exp <= now) return 'it has expired';
  if (exp > now + MAX_LIFETIME_SECONDS) return 'it is valid for more than a day';
  return iat !== undefined && (typeof iat !== 'number' || iat > now + TOLERANCE_SECONDS)
    ? 'iat is in the future'
    : null;
}

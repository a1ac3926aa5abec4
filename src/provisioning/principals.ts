import type { Origin } from '../http/scope.js';
import { type Clock, HOUR } from '../kernel/clock.js';
import { isSecretOf, newId, newToken, type Random, sha256 } from '../kernel/secrets.js';
import type { Audit } from '../ops/audit.js';
import type { PasswordPolicy } from '../passwords/common.js';
import type { Passwords } from '../passwords/hasher.js';
import { UniqueViolation } from '../storage/collection.js';
import { type Attempt, atMost, type Limit, type Throttle } from '../throttle/throttle.js';
import { invalid, provisioningErrors } from './errors.js';
import { canonicalForm, canonicalHandle, isPossibleHandle } from './handles.js';
import { KINDS, type Kind } from './schemas.js';
import type { PrincipalCollection, PrincipalDocument } from './store.js';

/** Passwords that we generate begin so; those that people choose must not. */
const GENERATED = 'agp_';

/** A hash that no generated password has: unknown handles cost the same work as known ones. */
const NOBODY = sha256('the generated password of nobody');

/** The refusal of a new place when the guesses of many others have used up what an account has. */
const BUDGET_SPENT =
  'There were too many failed sign-in attempts for this account. Sign in from a location where you have signed in before, try again later, or ask the operator for a link to set a new password, which also allows sign-in from this location.';

/** How many principals an address block may make. */
const REGISTRATIONS = atMost('accounts', 30, HOUR);
/** Agents and invitations together. */
export const MINTINGS: Limit = atMost('agents', 60, HOUR);

export interface Principals {
  /** @throws invalid_kind, handle_taken, VALIDATION_ERROR, WEAK_PASSWORD, RATE_LIMITED, OVERLOADED */
  register(
    input: { handle: string; password: string; kind?: unknown; name?: string },
    from: Origin,
  ): Promise<PrincipalDocument>;
  /** @throws kind_not_allowed, handle_taken, VALIDATION_ERROR, RATE_LIMITED */
  mintAgent(
    input: { handle: string; name?: string; kind?: unknown; password?: unknown },
    from: Origin,
  ): Promise<{ agent: PrincipalDocument; password: string }>;
  /**
   * Gives an agent a new generated password, and makes whatever came of the old one worthless. Only in the state in
   * which `agent` was read, so that of two at once one succeeds; else `null`.
   */
  rotate(agent: PrincipalDocument, from: Origin): Promise<string | null>;
  /**
   * The active principal with these credentials, or `null`. The work follows the shape of the password and never
   * the handle, so its duration tells nothing about which handles exist.
   *
   * @param accepts whether this principal may sign in this way; if not, its password was as good as wrong
   * @throws RATE_LIMITED, OVERLOADED
   */
  authenticate(
    handle: string,
    password: string,
    from: Origin,
    accepts: (principal: PrincipalDocument) => boolean,
  ): Promise<PrincipalDocument | null>;
  /** The active principal of a `sub`, or `null`. */
  find(sub: string): Promise<PrincipalDocument | null>;
}

export interface Dependencies {
  audit: Pick<Audit, 'record'>;
  clock: Clock;
  random: Random;
}

export interface PrincipalDependencies extends Dependencies {
  passwords: Passwords;
  passwordPolicy: PasswordPolicy;
  throttle: Pick<Throttle, 'count' | 'trustOnly'>;
  attempt: Attempt;
}

export function createPrincipals(
  principals: PrincipalCollection,
  { passwords, passwordPolicy, throttle, attempt, audit, clock, random }: PrincipalDependencies,
): Principals {
  const create = async (
    input: { handle: string; name?: string | undefined },
    rest: Pick<PrincipalDocument, 'kind' | 'passwordHash' | 'secretHash'>,
  ): Promise<PrincipalDocument> => {
    const now = clock.now();
    const principal: PrincipalDocument = {
      id: newId('u_', clock, random),
      handle: input.handle,
      ...(input.name && { name: input.name }),
      state: 'active',
      createdAt: now,
      updatedAt: now,
      ...rest,
    };
    await principals.insert(principal).catch((error: unknown) => {
      throw error instanceof UniqueViolation ? provisioningErrors.handle_taken() : error;
    });
    return principal;
  };

  return {
    async register({ handle, password, kind = 'agent', name }, { ip, isGone }) {
      if (!isKind(kind)) throw provisioningErrors.invalid_kind();
      const canonical = canonicalHandle(handle);
      const problem = chosenPasswordProblem(password, passwords);
      if (problem) throw invalid({ path: 'password', message: problem });
      await passwordPolicy.judge(password, [canonical]);
      await throttle.count(REGISTRATIONS, ip);
      const passwordHash = await passwords.hash(password, isGone);
      const principal = await create({ handle: canonical, name }, { kind, passwordHash });
      await throttle.trustOnly(canonical, ip);
      await audit.record({ event: 'account.registered', subject: principal.id, ip, detail: kind });
      return principal;
    },

    async mintAgent({ handle, name, kind = 'agent', password }, { ip }) {
      if (kind !== 'agent') throw provisioningErrors.kind_not_allowed();
      if (password !== undefined) throw invalid({ path: 'password', message: 'is generated by the service' });
      const canonical = canonicalHandle(handle);
      await throttle.count(MINTINGS, ip);
      const generated = newToken(random, GENERATED);
      const rest = { kind: 'agent', secretHash: sha256(generated) } as const;
      const agent = await create({ handle: canonical, name }, rest);
      await audit.record({ event: 'agent.minted', subject: agent.id, ip });
      return { agent, password: generated };
    },

    async rotate({ id, epoch }, { ip }) {
      const generated = newToken(random, GENERATED);
      const rotated = await principals.updateOne(
        { id, kind: 'agent', state: 'active', epoch: epoch ?? null },
        {
          set: { secretHash: sha256(generated), updatedAt: clock.now() },
          unset: ['passwordHash'],
          inc: { epoch: 1 },
        },
      );
      if (!rotated) return null;
      await audit.record({ event: 'agent.rotated', subject: id, ip });
      return generated;
    },

    async authenticate(handle, password, { ip, isGone }, accepts) {
      const account = canonicalForm(handle);
      const isUnguessable = password.startsWith(GENERATED);
      if (!isUnguessable) await passwords.ensureRoom();
      const kind = isUnguessable ? 'agent' : 'password';
      return attempt({ account, ip, kind, onBudgetSpent: () => BUDGET_SPENT }, async () => {
        const candidate = isPossibleHandle(handle) ? await principals.findOne({ handle: account }) : null;
        const ok = isUnguessable
          ? isSecretOf(password, candidate?.secretHash ?? NOBODY)
          : (await passwords.verify(candidate?.passwordHash ?? null, password, isGone)).ok;
        return ok && candidate?.state === 'active' && accepts(candidate) ? candidate : null;
      });
    },

    async find(sub) {
      const principal = await principals.findOne({ id: sub });
      return principal?.state === 'active' ? principal : null;
    },
  };
}

/** Says what is wrong with a password that somebody chose, or `null`. */
export function chosenPasswordProblem(
  password: string,
  passwords: Pick<Passwords, 'problem'>,
): string | null {
  return password.startsWith(GENERATED) ? `must not begin with ${GENERATED}` : passwords.problem(password);
}

const isKind = (kind: unknown): kind is Kind => (KINDS as readonly unknown[]).includes(kind);

import { hash } from 'node:crypto';
import type { RequestSource } from '../../core/http/routes.js';
import type { Clock } from '../../core/kernel/clock.js';
import { invalidFields } from '../../core/kernel/errors.js';
import { defined } from '../../core/kernel/fields.js';
import { isSecretOf, newId, newToken, type Random, sha256, UNUSED_HASH } from '../../core/kernel/secrets.js';
import { type Audit, actorOf } from '../../core/ops/audit.js';
import type { CommitPart, CommitParts } from '../../core/ops/commit.js';
import { type PasswordPolicy, passwordErrors } from '../../core/passwords/common.js';
import type { Passwords } from '../../core/passwords/hasher.js';
import { PASSWORD_PROBLEMS } from '../../core/passwords/problems.js';
import { UniqueViolation } from '../../core/storage/collection.js';
import type { Throttle } from '../../core/throttle/throttle.js';
import { type Addresses, namesOf } from './addresses.js';
import { readAgentKey } from './agent-keys.js';
import { type AgentDetails, type Agents, UNUSED_LIFETIME_MS } from './agents.js';
import { provisioningErrors } from './errors.js';
import { canonicalHandle, isPossibleHandle } from './handles.js';
import { CREATIONS, FAILURES, REGISTRATIONS } from './limits.js';
import type { PersonMails } from './mails.js';
import {
  type EndSessions,
  findActive,
  hasEnded,
  KINDS,
  type Kind,
  PASSWORD_LINK_FIELDS,
  type PrincipalCollection,
  type PrincipalDocument,
} from './store.js';

/** Prefix of generated passwords, which a chosen password must not have. */
const GENERATED_PREFIX = 'agp_';

/** The error for a new address while wrong passwords from many others exhaust the limit of the account. */
const BUDGET_SPENT =
  'There were too many failed sign-in attempts for this account. Sign in from a location where you have signed in before, try again later, or ask the operator for a link to set a new password, which also allows sign-in from this location.';

const PRINCIPAL = 'u_';

/**
 * The identifier of the person who signs up with a form: a passkey contains it before the account exists. Unlike others, it
 * does not begin with the time.
 */
export const idOfSignUp = (form: string): string =>
  PRINCIPAL + hash('sha256', `principal ${form}`, 'hex').slice(0, 32);

export type Principals = ReturnType<typeof createPrincipals>;

export interface Dependencies {
  commit: CommitParts;
  audit: Pick<Audit, 'entry'>;
  clock: Clock;
  random: Random;
}

export interface NewAgent extends AgentDetails {
  handle: string;
  name?: string;
}

export interface PrincipalDependencies extends Dependencies {
  addresses: Addresses;
  agents: Pick<Agents, 'validate'>;
  endSessions: EndSessions;
  passwords: Passwords;
  passwordPolicy: PasswordPolicy;
  throttle: Pick<Throttle, 'attempt' | 'count' | 'trustOnly'>;
  /** Absent without a mail server. */
  mails?: PersonMails | undefined;
}

export function createPrincipals(principals: PrincipalCollection, deps: PrincipalDependencies) {
  const { passwords, passwordPolicy, throttle, endSessions, agents, mails } = deps;
  const { addresses, commit, audit, clock, random } = deps;

  const newPrincipal = (
    input: { handle: string; email?: string | undefined; name?: string | undefined },
    rest: Partial<PrincipalDocument> & Pick<PrincipalDocument, 'kind'>,
    id = newId(PRINCIPAL, clock, random),
  ): PrincipalDocument => {
    const now = clock.now();
    return {
      id,
      handle: input.handle,
      ...(input.email !== undefined && { email: input.email }),
      ...(input.name && { name: input.name.trim() }),
      state: 'active',
      createdAt: now,
      updatedAt: now,
      ...rest,
    };
  };

  /** @throws handle_taken, email_taken */
  const insert = async (
    principal: PrincipalDocument,
    ...effects: CommitPart[]
  ): Promise<PrincipalDocument> => {
    const refuseTaken = async (error?: unknown) => {
      const conflict = await addresses.conflict(principal, principal.id);
      if (conflict ?? error) throw conflict ?? error;
    };
    // An address may be the handle of a principal of an earlier version, which has reserved nothing.
    if (principal.email !== undefined || principal.clientMetadata !== undefined) await refuseTaken();
    const parts = [principals.inserting(principal), ...effects, ...addresses.claiming(principal)];
    await commit(parts).catch((error: unknown) => {
      if (error instanceof UniqueViolation) return refuseTaken(error);
      throw error;
    });
    return principal;
  };

  const insertAgent = async (
    { handle, name, ...given }: NewAgent,
    credentials: Pick<PrincipalDocument, 'secretHash' | 'keys'>,
    source: RequestSource,
    isVouched: boolean,
  ): Promise<PrincipalDocument> => {
    const canonical = canonicalHandle(handle);
    const { owner, purpose, expiresAt, redirectUris, clientMetadata, notificationEndpoint } = given;
    const asClient = { redirectUris, clientMetadata, notificationEndpoint };
    const details = defined({ owner, purpose, expiresAt, ...asClient });
    await agents.validate(details);
    await throttle.count(CREATIONS, source.ip);
    const now = clock.now();
    const agent = newPrincipal(
      { handle: canonical, name },
      {
        ...{ kind: 'agent', ...credentials, ...details, mintedAt: now, mintedBy: source.by ?? source.ip },
        ...(isVouched && { vouchedAt: now }),
      },
    );
    const presented = [redirectUris ?? [], clientMetadata ?? [], notificationEndpoint ?? []].flat();
    const detail = [...(credentials.keys ?? []).map(({ id }) => id), ...presented].join(' ');
    const record = {
      event: 'agent.minted',
      subject: agent.id,
      ...actorOf(source),
      ...(detail && { detail }),
    };
    return insert(agent, audit.entry(record));
  };

  /** Stores an account that someone has signed up for, with the link that verifies its address. @throws handle_taken, email_taken */
  const signUp = async (
    principal: PrincipalDocument,
    source: RequestSource,
    passkey: readonly CommitPart[] = [],
  ): Promise<PrincipalDocument> => {
    const { id: subject, handle, kind: detail } = principal;
    const link = mails?.verification(principal, source);
    const record = audit.entry({ event: 'account.registered', subject, ip: source.ip, detail });
    const created = await insert({ ...principal, ...link?.stored }, link?.mail, record, ...passkey);
    await throttle.trustOnly(handle, source.ip);
    return created;
  };

  /**
   * The active principal with these credentials, or `null`. The work depends on the form of the password and never on
   * the handle, so that its duration does not reveal which handles exist.
   *
   * @param name the handle or the e-mail address: failures count for the same account
   * @param accepts whether this principal may sign in this way; if not, the password counts as wrong
   * @throws RATE_LIMITED, OVERLOADED
   */
  const authenticate = async (
    name: string,
    password: string,
    { ip, isDisconnected }: RequestSource,
    accepts: (principal: PrincipalDocument) => boolean,
  ): Promise<PrincipalDocument | null> => {
    const account = await addresses.accountOf(name);
    const isGenerated = password.startsWith(GENERATED_PREFIX);
    // Verifying a generated password is fast, so it does not use the hashing queue.
    if (!isGenerated) await passwords.ensureCapacity();
    const kind = isGenerated ? 'agent' : 'password';
    const guess = {
      account,
      ip,
      kind,
      perAddress: FAILURES[kind],
      onBudgetSpent: () => BUDGET_SPENT,
    } as const;
    return throttle.attempt(guess, async () => {
      const candidate = isPossibleHandle(account) ? await principals.findOne({ handle: account }) : null;
      const ok = isGenerated
        ? isSecretOf(password, candidate?.secretHash ?? UNUSED_HASH)
        : (await passwords.verify(candidate?.passwordHash ?? null, password, isDisconnected)).ok;
      const isActive = candidate?.state === 'active' && !hasEnded(candidate, clock.now());
      return ok && isActive && accepts(candidate) ? candidate : null;
    });
  };

  const hasPassword = async (
    id: string,
    password: string,
    { isDisconnected }: RequestSource,
  ): Promise<boolean> => {
    const { passwordHash = null } = (await principals.findOne({ id, state: 'active' })) ?? {};
    return (await passwords.verify(passwordHash, password, isDisconnected)).ok;
  };

  return {
    /** @throws invalid_kind, handle_taken, email_taken, VALIDATION_ERROR, WEAK_PASSWORD, RATE_LIMITED, OVERLOADED */
    async register(
      {
        handle,
        password,
        kind = 'agent',
        ...given
      }: { handle: string; password: string; kind?: unknown; name?: string; email?: string },
      source: RequestSource,
    ): Promise<PrincipalDocument> {
      const { ip, isDisconnected } = source;
      if (!isKind(kind)) throw provisioningErrors.invalid_kind();
      if (given.email !== undefined && kind !== 'human')
        throw invalidFields({
          path: 'email',
          message: 'is for people; the address of an agent is its handle',
        });
      const names = namesOf({ ...given, handle });
      const problem = chosenPasswordProblem(password, passwords);
      if (problem) throw invalidFields({ path: 'password', message: problem });
      await passwordPolicy.validate(password, Object.values(names));
      await throttle.count(REGISTRATIONS, ip);
      const passwordHash = await passwords.hash(password, isDisconnected);
      const expiresAt = kind === 'agent' ? clock.now() + UNUSED_LIFETIME_MS : undefined;
      const rest = { kind, passwordHash, ...defined({ expiresAt }) };
      return signUp(newPrincipal({ ...names, name: given.name }, rest), source);
    },

    /**
     * Creates a person without a password, who signs in with a passkey.
     * @param id by `idOfSignUp`
     * @param passkey what is stored in the same commit
     * @throws UniqueViolation for the passkey, handle_taken, VALIDATION_ERROR, RATE_LIMITED
     */
    async registerWithPasskey(
      { id, handle, name }: { id: string; handle: string; name?: string },
      passkey: readonly CommitPart[],
      source: RequestSource,
    ): Promise<PrincipalDocument> {
      const canonical = canonicalHandle(handle);
      await throttle.count(REGISTRATIONS, source.ip);
      const rest = { kind: 'human', passkeyOnly: true } as const;
      return signUp(newPrincipal({ handle: canonical, name }, rest, id), source, passkey);
    },

    /**
     * Creates an agent with a generated password.
     * @param isVouched whether the creator may vouch for the e-mail address in the handle
     * @throws kind_not_allowed, handle_taken, VALIDATION_ERROR, RATE_LIMITED
     */
    async mintAgent(
      { kind = 'agent', password, ...input }: NewAgent & { kind?: unknown; password?: unknown },
      source: RequestSource,
      isVouched: boolean,
    ): Promise<{ agent: PrincipalDocument; password: string }> {
      if (kind !== 'agent') throw provisioningErrors.kind_not_allowed();
      if (password !== undefined)
        throw invalidFields({ path: 'password', message: 'is generated by the service' });
      const generated = newToken(random, GENERATED_PREFIX);
      const agent = await insertAgent(input, { secretHash: sha256(generated) }, source, isVouched);
      return { agent, password: generated };
    },

    /**
     * Creates an agent that authenticates with a key and has no password.
     * @throws handle_taken, VALIDATION_ERROR, RATE_LIMITED
     */
    async mintAgentWithKey(
      { key, ...input }: NewAgent & { key: unknown },
      source: RequestSource,
    ): Promise<PrincipalDocument> {
      return insertAgent(input, { keys: [readAgentKey(key, clock.now())] }, source, true);
    },

    /**
     * Gives an agent a new generated password and revokes everything issued under the old one. `null` when `agent` has
     * changed since it was read, so that one of two simultaneous rotations succeeds.
     */
    async rotate(agent: PrincipalDocument, source: RequestSource): Promise<string | null> {
      const { id, epoch } = agent;
      const generated = newToken(random, GENERATED_PREFIX);
      const { committed } = await commit([
        principals.changing(
          { id, kind: 'agent', state: 'active', epoch: epoch ?? null },
          {
            set: { secretHash: sha256(generated), updatedAt: clock.now() },
            unset: ['passwordHash'],
            inc: { epoch: 1 },
          },
        ),
        await endSessions(agent, source),
        audit.entry({ event: 'agent.rotated', subject: id, ...actorOf(source) }),
      ]);
      return committed ? generated : null;
    },

    authenticate,

    /**
     * Changes the password of a human and revokes everything issued under the old one. `false` if `current` is wrong or
     * was changed in the meantime, unless to `chosen`.
     * @throws WEAK_PASSWORD, RATE_LIMITED, OVERLOADED
     */
    async changePassword(
      { id, handle, email }: Pick<PrincipalDocument, 'id' | 'handle' | 'email'>,
      { current, chosen }: { current: string; chosen: string },
      source: RequestSource,
    ): Promise<boolean> {
      const proven = await authenticate(handle, current, source, (principal) => principal.id === id);
      // On a double click, the browser shows the response to the second form, whose password is already stored.
      if (proven?.kind !== 'human') return hasPassword(id, chosen, source);
      const problem = chosenPasswordProblem(chosen, passwords);
      if (problem) throw passwordErrors.WEAK_PASSWORD({ details: [{ path: 'password', message: problem }] });
      await passwordPolicy.validate(chosen, email === undefined ? [handle] : [handle, email]);
      const passwordHash = await passwords.hash(chosen, source.isDisconnected);
      const { committed } = await commit([
        principals.changing(
          { id, kind: 'human', state: 'active', epoch: proven.epoch ?? null },
          {
            set: { passwordHash, updatedAt: clock.now() },
            // A reset link is no longer needed.
            unset: [...PASSWORD_LINK_FIELDS, 'usedLink'],
            inc: { epoch: 1 },
          },
        ),
        await endSessions(proven, source),
        mails?.passwordChanged(proven, source),
        audit.entry({ event: 'password.changed', subject: id, ip: source.ip }),
      ]);
      if (!committed) return hasPassword(id, chosen, source);
      await throttle.trustOnly(handle, source.ip);
      return true;
    },

    /** Changes the name of a human; an empty one removes it. `false` unless the human is active. */
    async rename({ id }: Pick<PrincipalDocument, 'id'>, given: string, source: RequestSource) {
      const name = given.trim();
      const updatedAt = clock.now();
      const { committed } = await commit([
        principals.changing(
          { id, kind: 'human', state: 'active' },
          name === '' ? { set: { updatedAt }, unset: ['name'] } : { set: { name, updatedAt } },
        ),
        audit.entry({ event: 'account.renamed', subject: id, ip: source.ip }),
      ]);
      return committed;
    },

    /** The active principal of a `sub`, or `null`. */
    find: findActive(principals, clock),
  };
}

/** The problem of a chosen password, or `null`. */
export function chosenPasswordProblem(
  password: string,
  passwords: Pick<Passwords, 'problem'>,
): string | null {
  return password.startsWith(GENERATED_PREFIX) ? PASSWORD_PROBLEMS.generated : passwords.problem(password);
}

const isKind = (kind: unknown): kind is Kind => (KINDS as readonly unknown[]).includes(kind);

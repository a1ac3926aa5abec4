import type { RequestSource } from '../../core/http/routes.js';
import { type Clock, HOUR } from '../../core/kernel/clock.js';
import { type Audit, actorOf } from '../../core/ops/audit.js';
import { type CommitPart, decideAndCommit } from '../../core/ops/commit.js';
import { nullIfTaken, type Write } from '../../core/storage/collection.js';
import type { Throttle } from '../../core/throttle/throttle.js';
import {
  type Assertion,
  type AuthenticatorState,
  challengeOf,
  creationOptions,
  parseAssertion,
  type RelyingParty,
  requestOptions,
  userHandleOf,
  type Verification,
} from './ceremony.js';
import {
  type ChangeSource,
  MAX_PER_ACCOUNT,
  type PasskeyDocument,
  passkeysOf,
  type RemovalDependencies,
  removePasskeys,
  type UsedChallenges,
} from './store.js';

/** The passkeys of accounts. `form` is the token of the form that contains the challenge and its response. */
export type PasskeyService = ReturnType<typeof createPasskeyService>;

/** What the browser has created: the response to the challenge of the form, and what the person calls the passkey. */
export interface CreatedPasskey {
  form: string;
  credential: string;
  name: string;
}

export interface PasskeyDependencies extends RemovalDependencies, Verification {
  usedChallenges: UsedChallenges;
  relyingParty(): RelyingParty;
  throttle: Pick<Throttle, 'attempt'>;
  audit: Pick<Audit, 'entry' | 'record' | 'recordFailure'>;
  /** Whether the account can sign in without a passkey. */
  hasOtherLogin(account: string): Promise<boolean>;
  clock: Clock;
}

/** A key without an owner verifies signatures of unknown passkeys, so that they take as long as known ones. */
const DECOY = {
  account: 'none',
  publicKey:
    'pQECAyYgASFYID9_J13qifyruw0yFzmL2Bns8n0cmoYlp900vjm8wVLSIlggb9g1542uR-mImZouj7aZq8SG85AbN9zZia6fz9FLZJ0',
};

/** Longer than any form with a challenge can be submitted. */
const USED_CHALLENGE_MS = HOUR;

export function createPasskeyService(deps: PasskeyDependencies) {
  const { passkeys, usedChallenges, readAccount, commit, relyingParty, throttle, audit, clock } = deps;

  /** The oldest first. */
  const list = async (account: string): Promise<PasskeyDocument[]> =>
    (await passkeysOf(passkeys, account)).sort((one, other) => one.createdAt - other.createdAt);

  /** The first use of the challenge, in all processes together: another one is a unique violation. */
  const usingChallenge = (form: string): Write =>
    usedChallenges.inserting({ id: challengeOf(form), expiresAt: clock.now() + USED_CHALLENGE_MS });

  /** Uses the challenge and stores what the authenticator reports, unless it contradicts what it has reported before. */
  const update = async (
    known: PasskeyDocument,
    seen: AuthenticatorState,
    form: string,
    { ip }: RequestSource,
  ): Promise<boolean> => {
    for (let stored: PasskeyDocument | null = known; stored; ) {
      if (seen.backupEligible !== stored.backupEligible) return false;
      if (isCounterStale(stored, seen)) {
        await audit.record({ event: 'passkey.counter', subject: stored.account, ip });
        return false;
      }
      const { id, counter } = stored;
      const set = { counter: seen.counter, backedUp: seen.backedUp, lastUsedAt: clock.now() };
      const updating = passkeys.changing({ id, counter }, { set });
      const used = await commit([usingChallenge(form), updating]).catch(nullIfTaken);
      if (!used) return false;
      if (used.committed) return true;
      stored = await passkeys.findOne({ id });
    }
    return false;
  };

  const stateIn = (assertion: Assertion, publicKey: string, form: string) =>
    deps.verifyAssertion(relyingParty(), form, assertion, { id: assertion.id, publicKey });

  /** A valid response of the browser as a new passkey, with the writes that add it once. Null for an invalid one. */
  const create = async (
    account: string,
    { form, credential, name }: CreatedPasskey,
    { ip }: RequestSource,
  ): Promise<{ passkey: PasskeyDocument; writes: readonly CommitPart[] } | null> => {
    const created = await deps.verifyCreation(relyingParty(), form, credential);
    if (!created) return null;
    const passkey = { ...created, account, name, createdAt: clock.now() };
    const added = audit.entry({ event: 'passkey.added', subject: account, ip });
    return { passkey, writes: [usingChallenge(form), passkeys.inserting(passkey), added] };
  };

  return {
    list,

    has: async (account: string): Promise<boolean> => (await passkeys.findOne({ account })) !== null,

    /** For the browser, as JSON; null if the account has as many as it can have. */
    async creationOptions(
      user: { id: string; handle: string; name?: string },
      form: string,
    ): Promise<string | null> {
      const existing = await passkeysOf(passkeys, user.id);
      if (existing.length >= MAX_PER_ACCOUNT) return null;
      return JSON.stringify(creationOptions(relyingParty(), user, form, existing));
    },

    /** The same for an account that does not exist yet. */
    firstCreationOptions: (user: { id: string; handle: string; name?: string }, form: string): string =>
      JSON.stringify(creationOptions(relyingParty(), user, form, [])),

    /**
     * The writes of the first passkey of an account, for the commit that creates the account: a unique violation is a repeated response. Null for
     * an invalid response, and for a known passkey.
     */
    async first(
      account: string,
      response: CreatedPasskey,
      source: RequestSource,
    ): Promise<readonly CommitPart[] | null> {
      const created = await create(account, response, source);
      // Here, too, because a sign-up with the address of an account has no such commit, and must not differ from others.
      const isKnown = created !== null && (await passkeys.findOne({ id: created.passkey.id })) !== null;
      return isKnown ? null : (created?.writes ?? null);
    },

    /**
     * Adds the passkey that the browser has created. Null for an invalid or repeated response, and beyond the limit.
     * @param ensureAllowed throws if the request must not add one any more
     */
    async add(
      id: string,
      response: CreatedPasskey,
      source: RequestSource,
      ensureAllowed?: () => Promise<void>,
    ): Promise<PasskeyDocument | null> {
      const created = await create(id, response, source);
      if (!created) return null;
      return decideAndCommit<PasskeyDocument | null>(commit, async () => {
        const account = await readAccount(id);
        await ensureAllowed?.();
        if (!account || (await passkeys.count({ account: id }, MAX_PER_ACCOUNT)) >= MAX_PER_ACCOUNT)
          return { result: null };
        const parts = [account.nextRevision, ...created.writes, account.passkeyMail('added', source)];
        return { parts, result: created.passkey };
      }).catch(nullIfTaken);
    },

    /** For the browser, as JSON. */
    requestOptions: (form: string): string => JSON.stringify(requestOptions(relyingParty(), form)),

    /**
     * The account whose passkey has signed the challenge of the form. Null for an invalid or repeated signature, for a passkey
     * that may have been copied, and if `find` does not find the account. The audit names the `purpose`.
     * @throws RATE_LIMITED, after failures only
     */
    verify<T>(
      { form, credential, purpose }: { form: string; credential: string; purpose?: string },
      find: (account: string) => Promise<T | null>,
      source: RequestSource,
    ): Promise<T | null> {
      return throttle.attempt({ account: 'passkeys', ip: source.ip, kind: 'passkey' }, async () => {
        const assertion = parseAssertion(credential);
        const known = assertion && (await passkeys.findOne({ id: assertion.id }));
        const { account, publicKey } = known ?? DECOY;
        const isOwn = assertion?.userHandle === userHandleOf(account);
        const found = await find(account);
        const seen = assertion && (await stateIn(assertion, publicKey, form));
        if (known && found !== null && isOwn && seen && (await update(known, seen, form, source)))
          return found;
        const about = {
          ...(known && { subject: account }),
          ...(purpose !== undefined && { detail: purpose }),
        };
        await audit.recordFailure({ event: 'login.failed', ip: source.ip, ...about });
        return null;
      });
    },

    async rename(account: string, id: string, name: string, { ip }: RequestSource): Promise<boolean> {
      const { committed } = await commit([
        passkeys.changing({ id, account }, { set: { name } }),
        audit.entry({ event: 'passkey.renamed', subject: account, ip }),
      ]);
      return committed;
    },

    /**
     * Removes a passkey, but not the last way to sign in.
     * @returns `last` if the passkey stays for this reason, `unknown` if the account has no such passkey
     */
    remove: (id: string, passkey: string, source: RequestSource) =>
      decideAndCommit<'removed' | 'last' | 'unknown'>(commit, async () => {
        const account = await readAccount(id);
        const held = await passkeysOf(passkeys, id);
        if (!account || !held.some((one) => one.id === passkey)) return { result: 'unknown' };
        if (held.length === 1 && !(await deps.hasOtherLogin(id))) return { result: 'last' };
        const parts = [
          account.nextRevision,
          passkeys.deleting({ id: passkey, account: id }),
          account.passkeyMail('removed', source),
          audit.entry({ event: 'passkey.removed', subject: id, ...actorOf(source) }),
        ];
        return { parts, result: 'removed' };
      }),

    /** Removes all passkeys and returns their number. */
    removeAll: (account: string, source: ChangeSource): Promise<number> =>
      removePasskeys(account, source, deps),
  };
}

/**
 * Whether a copy of the passkey may have been used: a counter that exists has to grow (WebAuthn §7.2 step 22). A synced passkey
 * is copied on purpose, and its devices do not share a counter.
 */
const isCounterStale = (
  { counter: stored, backupEligible }: Pick<PasskeyDocument, 'counter' | 'backupEligible'>,
  { counter: seen }: AuthenticatorState,
): boolean => !backupEligible && (stored > 0 || seen > 0) && seen <= stored;

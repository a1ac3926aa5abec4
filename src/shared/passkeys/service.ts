import type { RequestSource } from '../../core/http/routes.js';
import { type Clock, HOUR } from '../../core/kernel/clock.js';
import type { Random } from '../../core/kernel/secrets.js';
import { type Audit, actorOf } from '../../core/ops/audit.js';
import { createRemovalMarks } from '../../core/ops/removal-marks.js';
import { nullIfTaken } from '../../core/storage/collection.js';
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
  changeOf,
  type PasskeyDocument,
  type RemovalDependencies,
  removePasskeys,
  type UsedChallenges,
} from './store.js';

/** The passkeys of accounts. `form` is the token of the form that contains the challenge and its response. */
export type PasskeyService = ReturnType<typeof createPasskeyService>;

export interface RemovalRule {
  keepsOne: boolean;
  /** Asked after the passkey is marked; must not count what is being removed. Absent: there is none. */
  hasOtherLogin?: (() => Promise<boolean>) | undefined;
}

export interface PasskeyDependencies extends RemovalDependencies, Verification {
  usedChallenges: UsedChallenges;
  relyingParty(): RelyingParty;
  throttle: Pick<Throttle, 'attempt'>;
  audit: Pick<Audit, 'record' | 'recordFailure'>;
  clock: Clock;
  random: Random;
}

const MAX_PER_ACCOUNT = 20;

/** A key without an owner verifies signatures of unknown passkeys, so that they take as long as known ones. */
const DECOY = {
  account: 'none',
  publicKey:
    'pQECAyYgASFYID9_J13qifyruw0yFzmL2Bns8n0cmoYlp900vjm8wVLSIlggb9g1542uR-mImZouj7aZq8SG85AbN9zZia6fz9FLZJ0',
};

/** Longer than any form with a challenge can be submitted. */
const USED_CHALLENGE_MS = HOUR;

export function createPasskeyService(deps: PasskeyDependencies) {
  const { passkeys, usedChallenges, relyingParty, throttle, audit, announce, clock, random } = deps;

  /** The oldest first. */
  const list = async (account: string): Promise<PasskeyDocument[]> => {
    const { items } = await passkeys.page({ where: { account }, sort: 'account', limit: MAX_PER_ACCOUNT });
    return items.sort((one, other) => one.createdAt - other.createdAt);
  };

  /** Whether this is the first use of the challenge, in all processes together. */
  const useChallenge = async (form: string): Promise<boolean> => {
    const used = { id: challengeOf(form), expiresAt: clock.now() + USED_CHALLENGE_MS };
    return (await usedChallenges.insert(used).then(() => true, nullIfTaken)) ?? false;
  };

  /** Stores what the authenticator reports, unless it contradicts what it has reported before. */
  const update = async (
    known: PasskeyDocument,
    seen: AuthenticatorState,
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
      if (await passkeys.changeOne({ id, counter }, { set, unset: ['leaving'] })) return true;
      stored = await passkeys.findOne({ id });
    }
    return false;
  };

  const stateIn = (assertion: Assertion, publicKey: string, form: string) =>
    deps.verifyAssertion(relyingParty(), form, assertion, { id: assertion.id, publicKey });

  /** Whether the account has one after the removals that have begun. */
  const keepsOne = async (account: string): Promise<boolean> =>
    (await passkeys.count({ account, leaving: null }, 1)) > 0;

  const marks = createRemovalMarks(passkeys, random);

  return {
    list,

    has: async (account: string): Promise<boolean> => (await passkeys.findOne({ account })) !== null,

    keepsOne,

    /** For the browser, as JSON; null if the account has as many as it can have. */
    async creationOptions(
      user: { id: string; handle: string; name?: string },
      form: string,
    ): Promise<string | null> {
      const existing = await list(user.id);
      if (existing.length >= MAX_PER_ACCOUNT) return null;
      return JSON.stringify(creationOptions(relyingParty(), user, form, existing));
    },

    /** The same for an account that does not exist yet. */
    firstCreationOptions: (user: { id: string; handle: string; name?: string }, form: string): string =>
      JSON.stringify(creationOptions(relyingParty(), user, form, [])),

    /** Adds the passkey that the browser has created. Null for an invalid or repeated response, and beyond the limit. */
    async add(
      account: string,
      { form, credential, name }: { form: string; credential: string; name: string },
      source: RequestSource,
    ): Promise<PasskeyDocument | null> {
      const created = await deps.verifyCreation(relyingParty(), form, credential);
      if (!created || !(await useChallenge(form))) return null;
      const passkey = { ...created, account, name, createdAt: clock.now() };
      if (!(await passkeys.insert(passkey).then(() => true, nullIfTaken))) return null;
      // Counted after the insertion, because others may be added at the same time.
      if ((await passkeys.count({ account }, MAX_PER_ACCOUNT + 1)) > MAX_PER_ACCOUNT) {
        await passkeys.deleteOne({ id: created.id });
        return null;
      }
      await announce?.(changeOf('added', passkey), account, source);
      await audit.record({ event: 'passkey.added', subject: account, ip: source.ip });
      return passkey;
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
        if (known && found !== null && isOwn && seen && (await useChallenge(form))) {
          if (await update(known, seen, source)) return found;
        }
        const about = {
          ...(known && { subject: account }),
          ...(purpose !== undefined && { detail: purpose }),
        };
        await audit.recordFailure({ event: 'login.failed', ip: source.ip, ...about });
        return null;
      });
    },

    async rename(account: string, id: string, name: string, { ip }: RequestSource): Promise<boolean> {
      const isRenamed = await passkeys.changeOne({ id, account }, { set: { name } });
      if (isRenamed) await audit.record({ event: 'passkey.renamed', subject: account, ip });
      return isRenamed;
    },

    /**
     * @param rule `keepsOne`: the last passkey of the account stays, also if several are removed at the same time, unless
     *   `hasOtherLogin` finds another way to sign in
     * @returns `last` if the passkey stays for this reason, `unknown` if the account has no such passkey
     */
    async remove(
      account: string,
      id: string,
      source: ChangeSource,
      rule: RemovalRule,
    ): Promise<'removed' | 'last' | 'unknown'> {
      for (;;) {
        const found = await passkeys.findOne({ id, account });
        if (!found) return 'unknown';
        const leaving = rule.keepsOne ? await marks.set(found) : undefined;
        if (leaving === null) continue;
        if (leaving !== undefined && !(await keepsOne(account)) && !(await rule.hasOtherLogin?.())) {
          await marks.clear(id, leaving);
          return 'last';
        }
        if (!(await passkeys.deleteOne({ id, account, ...(leaving !== undefined && { leaving }) }))) continue;
        await announce?.(changeOf('removed', found), account, source.by === undefined ? source : undefined);
        break;
      }
      await audit.record({ event: 'passkey.removed', subject: account, ...actorOf(source) });
      return 'removed';
    },

    /** Removes all passkeys and returns their number. */
    removeAll: (account: string, source: ChangeSource): Promise<number> =>
      removePasskeys(account, source, deps),

    /** Removes everything about a deleted account. */
    async forget(account: string) {
      await passkeys.deleteMany({ account });
    },
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

import type { Origin } from '../http/scope.js';
import { type Clock, HOUR } from '../kernel/clock.js';
import type { Audit } from '../ops/audit.js';
import { nullIfTaken } from '../storage/collection.js';
import type { Throttle } from '../throttle/throttle.js';
import {
  type Assertion,
  type AuthenticatorState,
  challengeOf,
  creationOptions,
  parseAssertion,
  type RelyingParty,
  requestOptions,
  userHandleOf,
  verifyAssertion,
  verifyCreation,
} from './ceremony.js';
import { type PasskeyDocument, type Passkeys, removePasskeys, type UsedChallenges } from './store.js';

/** The passkeys of accounts. `form` is the token of the form that contains the challenge and its response. */
export interface PasskeyService {
  /** The oldest first. */
  list(account: string): Promise<PasskeyDocument[]>;
  has(account: string): Promise<boolean>;
  /** For the browser, as JSON; null if the account has as many as it can have. */
  creationOptions(user: { id: string; handle: string; name?: string }, form: string): Promise<string | null>;
  /** The same for an account that does not exist yet, whose name the page fills in. */
  firstCreationOptions(account: string, form: string): string;
  /** Adds the passkey that the browser has created. False for an invalid or repeated response, and beyond the limit. */
  add(
    account: string,
    created: { form: string; credential: string; name: string },
    from: Origin,
  ): Promise<boolean>;
  /** For the browser, as JSON. */
  requestOptions(form: string): string;
  /**
   * The account whose passkey has signed the challenge of the form. Null for an invalid or repeated signature, for a passkey
   * that may have been copied, and if `find` does not find the account.
   * @throws RATE_LIMITED, after failures only
   */
  verify<T>(
    signed: { form: string; credential: string },
    find: (account: string) => Promise<T | null>,
    from: Origin,
  ): Promise<T | null>;
  rename(account: string, id: string, name: string, from: Origin): Promise<boolean>;
  remove(account: string, id: string, from: Origin): Promise<boolean>;
  /** Removes all passkeys and returns their number. */
  removeAll(account: string, from: Origin): Promise<number>;
  /** Removes everything about a deleted account. */
  forget(account: string): Promise<void>;
}

export interface PasskeyDependencies {
  passkeys: Passkeys;
  usedChallenges: UsedChallenges;
  relyingParty(): RelyingParty;
  throttle: Pick<Throttle, 'attempt'>;
  audit: Pick<Audit, 'record' | 'recordFailure'>;
  clock: Clock;
}

const MAX_PER_ACCOUNT = 20;

/** Longer than any form with a challenge can be submitted. */
const USED_CHALLENGE_MS = HOUR;

export function createPasskeyService(deps: PasskeyDependencies): PasskeyService {
  const { passkeys, usedChallenges, relyingParty, throttle, audit, clock } = deps;

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
    { ip }: Origin,
  ): Promise<boolean> => {
    for (let stored: PasskeyDocument | null = known; stored; ) {
      if (seen.backupEligible !== stored.backupEligible) return false;
      if (isCounterStale(stored, seen)) {
        await audit.record({ event: 'passkey.counter', subject: stored.account, ip });
        return false;
      }
      const { id, counter } = stored;
      const set = { counter: seen.counter, backedUp: seen.backedUp, lastUsedAt: clock.now() };
      if (await passkeys.changeOne({ id, counter }, { set })) return true;
      stored = await passkeys.findOne({ id });
    }
    return false;
  };

  const isSigned = async (passkey: PasskeyDocument, assertion: Assertion, form: string, from: Origin) => {
    const seen = await verifyAssertion(relyingParty(), form, assertion, passkey);
    return seen !== null && (await useChallenge(form)) && update(passkey, seen, from);
  };

  return {
    list,

    has: async (account) => (await passkeys.findOne({ account })) !== null,

    async creationOptions(user, form) {
      const existing = await list(user.id);
      if (existing.length >= MAX_PER_ACCOUNT) return null;
      return JSON.stringify(creationOptions(relyingParty(), user, form, existing));
    },

    firstCreationOptions: (account, form) =>
      JSON.stringify(creationOptions(relyingParty(), { id: account, handle: '' }, form, [])),

    async add(account, { form, credential, name }, { ip }) {
      const created = await verifyCreation(relyingParty(), form, credential);
      if (!created || !(await useChallenge(form))) return false;
      const passkey = { ...created, account, name, createdAt: clock.now() };
      if (!(await passkeys.insert(passkey).then(() => true, nullIfTaken))) return false;
      // Counted after the insertion, because others may be added at the same time.
      if ((await passkeys.count({ account }, MAX_PER_ACCOUNT + 1)) > MAX_PER_ACCOUNT) {
        await passkeys.deleteOne({ id: created.id });
        return false;
      }
      await audit.record({ event: 'passkey.added', subject: account, ip });
      return true;
    },

    requestOptions: (form) => JSON.stringify(requestOptions(relyingParty(), form)),

    verify({ form, credential }, find, from) {
      return throttle.attempt({ account: 'passkeys', ip: from.ip, kind: 'passkey' }, async () => {
        const assertion = parseAssertion(credential);
        const passkey = assertion && (await passkeys.findOne({ id: assertion.id }));
        const isOwn = passkey !== null && assertion?.userHandle === userHandleOf(passkey.account);
        const found = isOwn ? await find(passkey.account) : null;
        if (found !== null && isOwn && (await isSigned(passkey, assertion, form, from))) return found;
        const subject = passkey && { subject: passkey.account };
        await audit.recordFailure({ event: 'login.failed', ip: from.ip, ...subject });
        return null;
      });
    },

    async rename(account, id, name, { ip }) {
      const isRenamed = await passkeys.changeOne({ id, account }, { set: { name } });
      if (isRenamed) await audit.record({ event: 'passkey.renamed', subject: account, ip });
      return isRenamed;
    },

    async remove(account, id, { ip }) {
      const removed = await passkeys.deleteOne({ id, account });
      if (removed) await audit.record({ event: 'passkey.removed', subject: account, ip });
      return removed !== null;
    },

    removeAll: (account, from) => removePasskeys(account, from, deps),

    async forget(account) {
      await passkeys.deleteMany({ account });
    },
  };
}

/** Whether a copy of the passkey may have been used: a counter that exists has to grow (WebAuthn §7.2 step 22). */
const isCounterStale = (
  { counter: stored }: Pick<PasskeyDocument, 'counter'>,
  { counter: seen }: AuthenticatorState,
): boolean => (stored > 0 || seen > 0) && seen <= stored;

import { hkdfSync } from 'node:crypto';
import type { Origin } from '../http/scope.js';
import { type Clock, MINUTE } from '../kernel/clock.js';
import { createEncryption } from '../kernel/encryption.js';
import type { Random } from '../kernel/secrets.js';
import type { Audit } from '../ops/audit.js';
import { nullIfTaken } from '../storage/collection.js';
import type { Throttle } from '../throttle/throttle.js';
import { factorErrors } from './errors.js';
import type { FactorDocument, Factors } from './store.js';
import { type Enrolment, enrolmentOf, newSecret, recoveryCodesOf, recoveryHash, stepOfCode } from './totp.js';

/** How a person proved the second factor. */
export type FactorMethod = 'otp' | 'recovery';

export interface FactorState {
  /** When the person confirmed the authenticator app, in Unix milliseconds. */
  since: number;
  recoveryCodesLeft: number;
}

/** The second factor of accounts: codes of an authenticator app, and recovery codes for its loss. */
export interface FactorService {
  /** Null if the account has none. */
  stateOf(account: string): Promise<FactorState | null>;
  /**
   * A new secret for the authenticator app, which becomes the factor when a code of it is confirmed within 15 minutes. An earlier
   * factor stays valid until then.
   * @param label the user name, which the app shows
   */
  begin(account: string, label: string): Promise<Enrolment>;
  /** The secret that was shown last, for the same page after a wrong code; null if there is none any more. */
  pending(account: string, label: string): Promise<Enrolment | null>;
  /**
   * Confirms the new secret with a code of it. Returns the recovery codes, which cannot be read again; null for a wrong
   * code. The same form returns the same codes.
   * @throws factor_changed, RATE_LIMITED
   */
  confirm(account: string, code: string, form: string, from: Origin): Promise<string[] | null>;
  /**
   * Checks a code of the app or a recovery code, and uses it. Null for a wrong or used one.
   * @throws RATE_LIMITED
   */
  verify(account: string, code: string, from: Origin): Promise<FactorMethod | null>;
  /** New recovery codes instead of all earlier ones. @throws factor_changed if there is no factor */
  renewRecoveryCodes(account: string, form: string, from: Origin): Promise<string[]>;
  /** Removes the factor. False if there is none. */
  remove(account: string, from: Pick<Origin, 'ip'>, by?: string): Promise<boolean>;
  /** Removes everything about a deleted account. */
  forget(account: string): Promise<void>;
}

export interface FactorDependencies {
  factors: Factors;
  /** The encryption keys, the current one first. */
  keys: readonly [string, ...string[]];
  /** What the authenticator app shows as the provider of the account. */
  issuer(): string;
  throttle: Pick<Throttle, 'attempt'>;
  audit: Pick<Audit, 'record' | 'recordFailure'>;
  clock: Clock;
  random: Random;
}

const ENROLMENT_MS = 15 * MINUTE;

export function createFactorService(deps: FactorDependencies): FactorService {
  const { factors, keys, issuer, throttle, audit, clock, random } = deps;
  const encryption = createEncryption({
    keys,
    purpose: 'second factors',
    unreadable: () =>
      'A second factor cannot be decrypted. Set FACTOR_ENCRYPTION_KEY or FACTOR_ENCRYPTION_KEY_PREVIOUS to the key that encrypted it, or remove the factor of the account.',
    random,
  });
  const recoveryKeys = keys.map((key) => Buffer.from(hkdfSync('sha256', key, '', 'recovery codes', 32)));
  const [recoveryKey] = recoveryKeys as [Buffer, ...Buffer[]];

  const hashesOf = (account: string, codes: readonly string[]): string[] =>
    codes.flatMap((code) => recoveryHash(recoveryKey, account, code) ?? []);

  /** Evaluates a code with the limits for guesses: of six digits, one in 333,333 is right. */
  const attempt = <T>(account: string, from: Origin, evaluate: () => Promise<T | null>): Promise<T | null> =>
    throttle.attempt({ account: `second factor of ${account}`, ip: from.ip }, evaluate);

  const change = async (
    { id, rev }: Pick<FactorDocument, 'id' | 'rev'>,
    set: Partial<Omit<FactorDocument, 'id' | 'rev' | 'updatedAt'>>,
    unset: ('pending' | 'pendingUntil')[] = [],
  ): Promise<boolean> => {
    const changes = { set: { ...set, updatedAt: clock.now() }, unset, inc: { rev: 1 } };
    return (await factors.updateOne({ id, rev }, changes)) !== null;
  };

  const pendingOf = (document: FactorDocument | null): string | null =>
    document?.pending === undefined || (document.pendingUntil ?? 0) <= clock.now()
      ? null
      : encryption.decrypt(document.id, document.pending);

  /** Uses a code of the app: a later step than any before, of the secret that was read. */
  const useCode = async ({ id, secret, rev }: FactorDocument, code: string): Promise<boolean> => {
    if (secret === undefined) return false;
    const step = stepOfCode(encryption.decrypt(id, secret), code, clock.now());
    if (step === null) return false;
    return (
      (await factors.updateOne({ id, rev, lastStep: { lt: step } }, { set: { lastStep: step } })) !== null
    );
  };

  /** Uses a recovery code, once. */
  const useRecoveryCode = async (document: FactorDocument, code: string): Promise<boolean> => {
    const hashes = recoveryKeys.map((key) => recoveryHash(key, document.id, code));
    const recovery = document.recovery.filter((hash) => !hashes.includes(hash));
    if (recovery.length === document.recovery.length) return false;
    return change(document, { recovery });
  };

  return {
    async stateOf(account) {
      const found = await factors.findOne({ id: account });
      if (found?.confirmedAt === undefined) return null;
      return { since: found.confirmedAt, recoveryCodesLeft: found.recovery.length };
    },

    async begin(account, label) {
      const secret = newSecret(random);
      const pending = {
        pending: encryption.encrypt(account, secret),
        pendingUntil: clock.now() + ENROLMENT_MS,
      };
      const now = clock.now();
      // Begins with the time, so that what was read about a removed factor never matches a new one.
      const fresh = { id: account, lastStep: 0, recovery: [], rev: now, updatedAt: now, ...pending };
      for (;;) {
        const found = await factors.findOne({ id: account });
        const stored = found
          ? await change(found, pending)
          : await factors.insert(fresh).then(() => true, nullIfTaken);
        if (stored) return enrolmentOf(secret, { issuer: issuer(), label });
      }
    },

    async pending(account, label) {
      const secret = pendingOf(await factors.findOne({ id: account }));
      return secret === null ? null : enrolmentOf(secret, { issuer: issuer(), label });
    },

    confirm(account, code, form, from) {
      const codes = recoveryCodesOf(recoveryKey, account, form);
      const recovery = hashesOf(account, codes);
      return attempt(account, from, async () => {
        const found = await factors.findOne({ id: account });
        const secret = pendingOf(found);
        // The form was submitted twice, and the browser shows the second response.
        if (found && secret === null && found.recovery.join() === recovery.join()) return codes;
        if (!found || secret === null) throw factorErrors.factor_changed();
        const step = stepOfCode(secret, code, clock.now());
        if (step === null) return null;
        const confirmed = await change(
          found,
          {
            secret: encryption.encrypt(account, secret),
            confirmedAt: clock.now(),
            lastStep: step,
            recovery,
          },
          ['pending', 'pendingUntil'],
        );
        if (!confirmed) throw factorErrors.factor_changed();
        await audit.record({ event: 'factor.enrolled', subject: account, ip: from.ip });
        return codes;
      });
    },

    async verify(account, code, from) {
      const method = await attempt(account, from, async (): Promise<FactorMethod | null> => {
        const found = await factors.findOne({ id: account });
        if (found?.secret === undefined) return null;
        const typed = code.replaceAll(/\s/g, '');
        if (await useCode(found, typed)) return 'otp';
        return (await useRecoveryCode(found, typed)) ? 'recovery' : null;
      });
      if (method === null) {
        await audit.recordFailure({ event: 'factor.failed', subject: account, ip: from.ip });
      } else if (method === 'recovery') {
        await audit.record({ event: 'factor.recovery-code-used', subject: account, ip: from.ip });
      }
      return method;
    },

    async renewRecoveryCodes(account, form, from) {
      const codes = recoveryCodesOf(recoveryKey, account, form);
      const recovery = hashesOf(account, codes);
      for (;;) {
        const found = await factors.findOne({ id: account });
        if (found?.secret === undefined) throw factorErrors.factor_changed();
        if (found.recovery.join() === recovery.join()) return codes;
        if (await change(found, { recovery })) break;
      }
      await audit.record({ event: 'factor.recovery-codes-renewed', subject: account, ip: from.ip });
      return codes;
    },

    async remove(account, { ip }, by) {
      const removed = await factors.deleteOne({ id: account });
      if (removed?.secret === undefined) return false;
      await audit.record({
        event: 'factor.removed',
        subject: account,
        ip,
        ...(by !== undefined && { detail: JSON.stringify({ by }) }),
      });
      return true;
    },

    async forget(account) {
      await factors.deleteOne({ id: account });
    },
  };
}

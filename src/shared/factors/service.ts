import { hkdfSync } from 'node:crypto';
import type { RequestSource } from '../../core/http/routes.js';
import { HOUR, MINUTE, SECOND } from '../../core/kernel/clock.js';
import { createEncryption } from '../../core/kernel/encryption.js';
import { newToken, type Random } from '../../core/kernel/secrets.js';
import { typedCode } from '../../core/kernel/text.js';
import type { Audit } from '../../core/ops/audit.js';
import { decideAndCommit } from '../../core/ops/commit.js';
import type { Job } from '../../core/ops/jobs.js';
import type { Change, Where } from '../../core/storage/collection.js';
import { pagesOf } from '../../core/storage/pages.js';
import type { Throttle } from '../../core/throttle/throttle.js';
import { factorErrors } from './errors.js';
import { type ChangeSource, type FactorDocument, type RemovalDependencies, removeFactor } from './store.js';
import { type Enrolment, enrolmentOf, newSecret, recoveryCodesOf, recoveryHash, stepOfCode } from './totp.js';

/** How a person proved the second factor. */
export type FactorMethod = 'otp' | 'recovery';

export interface FactorState {
  /** When the person confirmed the authenticator app, in Unix milliseconds. */
  since: number;
  recoveryCodesLeft: number;
}

/** The second factor of accounts: codes of an authenticator app, and recovery codes for its loss. */
export type FactorService = ReturnType<typeof createFactorService>;

export interface FactorDependencies extends RemovalDependencies {
  /** The encryption keys, the current one first. */
  keys: readonly [string, ...string[]];
  /** What the authenticator app shows as the provider of the account. */
  issuer(): string;
  throttle: Pick<Throttle, 'attempt' | 'trust'>;
  audit: Pick<Audit, 'entry' | 'recordFailure'>;
  random: Random;
}

const ENROLMENT_MS = 15 * MINUTE;

export function createFactorService(deps: FactorDependencies) {
  const { factors, readAccount, commit, keys, issuer, throttle, audit, clock, random } = deps;
  const encryption = createEncryption({
    keys,
    purpose: 'second factors',
    unreadable: () =>
      'A second factor cannot be decrypted. Set FACTOR_ENCRYPTION_KEY or FACTOR_ENCRYPTION_KEY_PREVIOUS to the key that encrypted it, or remove the factor of the account.',
    random,
  });
  const codeKey = Buffer.from(hkdfSync('sha256', keys[0], '', 'recovery codes', 32));

  /** Recovery codes as they are stored, with a new key. */
  const sealed = (account: string, codes: readonly string[]) => {
    const key = newToken(random);
    return {
      recovery: codes.flatMap((code) => recoveryHash(key, code) ?? []),
      recoveryKey: encryption.encrypt(recoveryNameOf(account), key),
    };
  };

  /** The stored form of a recovery code; null if it cannot be one. */
  const hashIn = ({ id, recoveryKey }: FactorDocument, code: string): string | null =>
    recoveryKey === undefined
      ? null
      : recoveryHash(encryption.decrypt(recoveryNameOf(id), recoveryKey), code);

  /** Whether these codes are the ones that were given out last. */
  const hasCodes = (document: FactorDocument, codes: readonly string[]): boolean =>
    document.recovery.length === codes.length &&
    codes.every((code, index) => hashIn(document, code) === document.recovery[index]);

  /** Evaluates a code with the limits for guesses: of six digits, one in 333,333 is right. */
  const attempt = <T>(
    account: string,
    source: RequestSource,
    evaluate: () => Promise<T | null>,
    onBudgetSpent?: () => string,
  ): Promise<T | null> =>
    throttle.attempt(
      { account: guessedAccount(account), ip: source.ip, ...(onBudgetSpent && { onBudgetSpent }) },
      evaluate,
    );

  /** A change of a document that is still as it was read. */
  const changeOf = (
    { id, rev }: Pick<FactorDocument, 'id' | 'rev'>,
    set: Partial<Omit<FactorDocument, 'id' | 'rev' | 'updatedAt'>>,
    unset: ('pending' | 'pendingUntil')[] = [],
  ): [Where<FactorDocument>, Change<FactorDocument>] => [
    { id, rev },
    { set: { ...set, updatedAt: clock.now() }, unset, inc: { rev: 1 } },
  ];

  /** Changes the document of an account, or inserts it. */
  const store = (
    account: string,
    set: Pick<FactorDocument, 'requiredFrom'> | Required<Pick<FactorDocument, 'pending' | 'pendingUntil'>>,
  ): Promise<void> =>
    decideAndCommit(commit, async () => {
      const found = await factors.findOne({ id: account });
      // A sign-in or a session that began without the factor must not replace it.
      if (found?.confirmedAt !== undefined) throw factorErrors.FACTOR_EXISTS();
      const now = clock.now();
      // It begins with the time, so that it never repeats that of a document that was deleted.
      const fresh = { id: account, lastStep: 0, recovery: [], rev: now, updatedAt: now, ...set };
      const write = found ? factors.changing(...changeOf(found, set)) : factors.inserting(fresh);
      return { parts: [write], result: undefined, repeatIfTaken: true };
    });

  const pendingOf = (document: FactorDocument | null): string | null =>
    document?.pending === undefined || (document.pendingUntil ?? 0) <= clock.now()
      ? null
      : encryption.decrypt(document.id, document.pending);

  /** Uses a code of the app or a recovery code, whatever else changes at the same time. */
  const use = (account: string, code: string, ip: string): Promise<FactorMethod | null> =>
    decideAndCommit<FactorMethod | null>(commit, async () => {
      const found = await factors.findOne({ id: account });
      if (found?.secret === undefined) return { result: null };
      const { rev, secret } = found;
      const step = stepOfCode(encryption.decrypt(account, secret), code, clock.now());
      if (step !== null) {
        if (found.lastStep >= step) return { result: null };
        const later = { id: account, rev, lastStep: { lt: step } };
        return { parts: [factors.changing(later, { set: { lastStep: step } })], result: 'otp' };
      }
      const hash = hashIn(found, code);
      if (hash === null || !found.recovery.includes(hash)) return { result: null };
      const recovery = found.recovery.filter((other) => other !== hash);
      const used = audit.entry({ event: 'factor.recovery-code-used', subject: account, ip });
      return { parts: [factors.changing(...changeOf(found, { recovery })), used], result: 'recovery' };
    });

  return {
    /** Null if the account has none. */
    async stateOf(account: string): Promise<FactorState | null> {
      const found = await factors.findOne({ id: account });
      if (found?.confirmedAt === undefined) return null;
      return { since: found.confirmedAt, recoveryCodesLeft: found.recovery.length };
    },

    /**
     * A new secret for the authenticator app, which becomes the factor when a code of it is confirmed within 15 minutes.
     * @param label the user name, which the app shows
     * @throws FACTOR_EXISTS
     */
    async begin(account: string, label: string): Promise<Enrolment> {
      const secret = newSecret(random);
      const pending = {
        pending: encryption.encrypt(account, secret),
        pendingUntil: clock.now() + ENROLMENT_MS,
      };
      await store(account, pending);
      return enrolmentOf(secret, { issuer: issuer(), label });
    },

    /** The secret that was shown last, for the same page after a wrong code; null if there is none any more. */
    async pending(account: string, label: string): Promise<Enrolment | null> {
      const secret = pendingOf(await factors.findOne({ id: account }));
      return secret === null ? null : enrolmentOf(secret, { issuer: issuer(), label });
    },

    /**
     * Confirms the new secret with a code of it. Returns the recovery codes, which cannot be read again; null for a wrong
     * code. The same form returns the same codes.
     * @throws FACTOR_CHANGED, RATE_LIMITED
     */
    confirm(account: string, code: string, form: string, source: RequestSource): Promise<string[] | null> {
      const codes = recoveryCodesOf(codeKey, account, form);
      const typed = typedCode(code);
      const decide = async () => {
        const [owner, found] = await Promise.all([readAccount(account), factors.findOne({ id: account })]);
        const secret = pendingOf(found);
        // The form was submitted twice, and the browser shows the second response.
        if (found && secret === null && hasCodes(found, codes)) return { result: codes };
        if (!owner || !found || secret === null) throw factorErrors.FACTOR_CHANGED();
        const step = stepOfCode(secret, typed, clock.now());
        if (step === null) return { result: null };
        const confirmed = {
          ...{ secret: encryption.encrypt(account, secret), lastStep: step, ...sealed(account, codes) },
          confirmedAt: clock.now(),
        };
        const parts = [
          owner.nextRevision,
          factors.changing(...changeOf(found, confirmed, ['pending', 'pendingUntil'])),
          owner.factorMail('added', source),
          audit.entry({ event: 'factor.enrolled', subject: account, ip: source.ip }),
        ];
        return { parts, result: codes };
      };
      return attempt(account, source, () => decideAndCommit<string[] | null>(commit, decide));
    },

    /**
     * Checks a code of the app or a recovery code, and uses it. Null for a wrong or used one.
     * @param onBudgetSpent called if only codes from other addresses exhaust the limit; returns the error message
     * @throws RATE_LIMITED
     */
    async verify(
      account: string,
      code: string,
      source: RequestSource,
      onBudgetSpent?: () => string,
    ): Promise<FactorMethod | null> {
      const typed = typedCode(code);
      const method = await attempt(account, source, () => use(account, typed, source.ip), onBudgetSpent);
      if (method === null)
        await audit.recordFailure({ event: 'factor.failed', subject: account, ip: source.ip });
      return method;
    },

    /** New recovery codes instead of all earlier ones. @throws FACTOR_CHANGED if there is no factor */
    renewRecoveryCodes(account: string, form: string, source: RequestSource): Promise<string[]> {
      const codes = recoveryCodesOf(codeKey, account, form);
      return decideAndCommit(commit, async () => {
        const found = await factors.findOne({ id: account });
        if (found?.secret === undefined) throw factorErrors.FACTOR_CHANGED();
        if (hasCodes(found, codes)) return { result: codes };
        const parts = [
          factors.changing(...changeOf(found, sealed(account, codes))),
          audit.entry({ event: 'factor.recovery-codes-renewed', subject: account, ip: source.ip }),
        ];
        return { parts, result: codes };
      });
    },

    /** Lets the owner, proven by an e-mailed link, give codes from this address while others exhaust the limit. */
    trust: (account: string, ip: string) => throttle.trust(guessedAccount(account), ip),

    /** Removes the factor. False if there is none. */
    remove: (account: string, source: ChangeSource): Promise<boolean> => removeFactor(account, source, deps),

    /**
     * By when an account without a factor must have one, in Unix milliseconds: the first call begins the period of grace, and a shorter
     * one applies to periods that have begun. Null if it has one.
     */
    async requiredFrom(account: string, graceMs: number): Promise<number | null> {
      const found = await factors.findOne({ id: account });
      if (found?.confirmedAt !== undefined) return null;
      const latest = clock.now() + graceMs;
      if (found?.requiredFrom !== undefined && found.requiredFrom <= latest) return found.requiredFrom;
      await store(account, { requiredFrom: latest });
      return latest;
    },

    /** Encrypts with the current key what another key has encrypted. */
    encryptionJob: {
      everySeconds: HOUR / SECOND,
      async run({ signal }) {
        for await (const documents of pagesOf(factors, { sort: 'id' })) {
          if (signal.aborted) return;
          for (const document of documents) {
            const renewed = renewedIn(document);
            // A concurrent change has used the current key, or the next run renews it.
            if (Object.keys(renewed).length > 0) await factors.changeOne(...changeOf(document, renewed));
          }
        }
      },
    } satisfies Job,
  };

  /** What another key than the current one has encrypted, encrypted anew. */
  function renewedIn(document: FactorDocument): Partial<FactorDocument> {
    const { id } = document;
    const names = { secret: id, pending: id, recoveryKey: recoveryNameOf(id) } as const;
    return Object.fromEntries(
      Object.entries(names).flatMap(([field, name]) => {
        const stored = document[field as keyof typeof names];
        if (stored === undefined || encryption.isCurrent(name, stored)) return [];
        return [[field, encryption.encrypt(name, encryption.decrypt(name, stored))]];
      }),
    );
  }
}

/** Apart from the password: who knows it must not use up the guesses at codes of its owner. */
const guessedAccount = (account: string): string => `second factor of ${account}`;

const recoveryNameOf = (account: string): string => `recovery codes of ${account}`;

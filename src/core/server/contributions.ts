import type { RequestSource } from '../http/routes.js';
import type { CommitPart } from '../ops/commit.js';
import type { Write } from '../storage/collection.js';

/**
 * What several domains have a share in. Each domain adds its part when it is created, so that those that use the whole name
 * none of them.
 */

/** What a domain stores about an account. */
export interface AccountDataPart {
  /** The section of the export of an account. Long lists are async iterables of pages. */
  section?: { name: string; read(account: string): Promise<unknown> | AsyncIterable<unknown[]> };
  /** Refuses a deletion that the person has to prepare. @throws AppError */
  check?(account: string): Promise<void>;
  /** Ends what costs the person money, before anything is deleted. Idempotent. */
  close?(account: string): Promise<void>;
  /** Deletes it before the account. Idempotent, because a deletion that was interrupted is repeated. */
  delete?(account: string): Promise<unknown>;
}

export type AccountData = ReturnType<typeof createAccountData>;

export function createAccountData() {
  const parts: AccountDataPart[] = [];
  return {
    add: (part: AccountDataPart): void => void parts.push(part),

    async check(account: string): Promise<void> {
      for (const part of parts) await part.check?.(account);
    },

    async close(account: string): Promise<void> {
      for (const part of parts) await part.close?.(account);
    },

    async delete(account: string): Promise<void> {
      await Promise.all(parts.map((part) => part.delete?.(account)));
    },

    /** The sections of the export by name. */
    async read(account: string): Promise<Record<string, unknown>> {
      const sections = parts.flatMap(({ section }) => section ?? []);
      const read = sections.map(async (section) => [section.name, await section.read(account)]);
      return Object.fromEntries(await Promise.all(read));
    },
  };
}

/** What gives access to an account. */
export interface SignInMethod {
  /** Whether the account can sign in with it alone. Absent for what does not suffice, such as a second factor. */
  isHeld?(account: string): Promise<boolean>;
  /**
   * What removes it, for the commit of a deletion or of a change of the owner. An account that stays has to be read before, as for any change
   * of its sign-in methods.
   *
   * @param source the request of the new owner, for a record in the audit
   */
  removal?(account: string, source?: RequestSource): Promise<readonly CommitPart[]>;
}

/**
 * An account, read before a change of what gives access to it. The commit of the change contains `nextRevision`: of simultaneous changes, one is
 * made and the others are decided again.
 */
export interface ReadAccount {
  /** Increments the revision of the account, if that and the owner are still those that were read. */
  nextRevision: Write;
}

export type SignInMethods = ReturnType<typeof createSignInMethods>;

export function createSignInMethods() {
  const methods: { name: string; method: SignInMethod }[] = [];

  return {
    /** A domain may add several parts under one name. */
    add: (name: string, method: SignInMethod): void => void methods.push({ name, method }),

    /** Whether the account can sign in without the named method. */
    async hasOther(name: string, account: string): Promise<boolean> {
      for (const other of methods) {
        if (other.name !== name && (await other.method.isHeld?.(account))) return true;
      }
      return false;
    },

    /** What removes everything but the password, which belongs to the account; `source` as for `SignInMethod.removal`. No mail: it would go to the new owner. */
    async removal(account: string, source?: RequestSource): Promise<readonly CommitPart[]> {
      const parts = methods.map(async ({ method }) => (await method.removal?.(account, source)) ?? []);
      return (await Promise.all(parts)).flat();
    },
  };
}

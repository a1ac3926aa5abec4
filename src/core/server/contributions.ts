import type { RequestSource } from '../http/routes.js';

/**
 * What several domains have a share in. Each domain adds its part when it is created, so that those that use the whole name
 * none of them.
 */

/** What a domain stores about an account. */
export interface AccountDataPart {
  /** The section of the export of an account. Long lists are async iterables of pages. */
  section?: { name: string; read(account: string): Promise<unknown> | AsyncIterable<unknown[]> };
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
  /**
   * Whether the account can sign in with it alone, after the removals that have begun. Absent for what does not suffice, such
   * as a second factor.
   */
  isHeld?(account: string): Promise<boolean>;
  /** Deletes it without a trace. Idempotent. */
  forget?(account: string): Promise<unknown>;
  /** Removes it because the account has a new owner, with a record in the audit. Idempotent. Default: as `forget`. */
  remove?(account: string, source: RequestSource): Promise<unknown>;
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

    /** Deletes everything but the password, which belongs to the account. */
    async forget(account: string): Promise<void> {
      await Promise.all(methods.map(({ method }) => method.forget?.(account)));
    },

    /** The same for an account that has a new owner, who gets no mail about what a stranger has set up. */
    async remove(account: string, source: RequestSource): Promise<void> {
      await Promise.all(
        methods.map(({ method }) =>
          method.remove ? method.remove(account, source) : method.forget?.(account),
        ),
      );
    },
  };
}

/** The current value of a version field of an account; undefined if the field is another domain's. */
export type ReadVersion = (account: string, field: string) => Promise<number | undefined>;

export type Versions = ReturnType<typeof createVersions>;

/** The versions that mails about changes wait for. */
export function createVersions() {
  const readers: ReadVersion[] = [];
  return {
    add: (read: ReadVersion): void => void readers.push(read),

    /** Undefined for a field that no domain has added. */
    async read(account: string, field: string): Promise<number | undefined> {
      for (const read of readers) {
        const version = await read(account, field);
        if (version !== undefined) return version;
      }
      return undefined;
    },
  };
}

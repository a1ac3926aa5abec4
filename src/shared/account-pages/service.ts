import type { RequestSource } from '../../core/http/routes.js';

/** What people do with their own accounts. Other domains provide it; the product passes it on. */

export interface Person {
  id: string;
  handle: string;
  name?: string;
  epoch?: number;
  emailVerifiedAt?: number;
  /** Without a password: the person signs in by another way. */
  passkeyOnly?: true;
}

export interface Session {
  id: string;
  authTime: number;
  /** As far as they are known. */
  browser?: string;
  system?: string;
  place?: string;
}

export interface AccountSources {
  people: {
    /**
     * The person if this is the password, or if there is none: the recent sign-in, which the pages require, was by another
     * way. Null for a wrong password.
     * @throws RATE_LIMITED, OVERLOADED
     */
    provePassword(person: Person, password: string, source: RequestSource): Promise<Person | null>;
    /**
     * Changes the password and revokes everything issued under the old one. `false` if `current` is wrong or was changed
     * in the meantime, unless to `chosen`.
     * @throws WEAK_PASSWORD, VALIDATION_ERROR for the length, RATE_LIMITED, OVERLOADED
     */
    changePassword(
      person: Person,
      passwords: { current: string; chosen: string },
      session: Session,
      source: RequestSource,
    ): Promise<boolean>;
    /** Whether the session in which the password was changed stays valid. */
    keepsSession: boolean;
    rename(person: Person, name: string, source: RequestSource): Promise<void>;
    /**
     * In one step, after which nothing issued to the person is valid; `false` if the password is wrong or was changed in the
     * meantime.
     * @throws RATE_LIMITED, OVERLOADED
     */
    delete(person: Person, password: string, source: RequestSource): Promise<boolean>;
    isDeleted(sub: string): Promise<boolean>;
    /** Whether the user name of a deleted person is never given to another one, and applications lose their access. */
    reservesHandles: boolean;
  };
  sessions: {
    /** The valid sessions, the newest first. */
    list(person: Person, current: Session): Promise<Session[]>;
    end(person: Person, sid: string, source: RequestSource): Promise<void>;
    endOthers(person: Person, current: Session, source: RequestSource): Promise<void>;
  };
  /** Absent in a product without applications. */
  applications?: {
    list(
      sub: string,
    ): Promise<{ clientId: string; scopes: string[]; resources: ResourceAccess[]; updatedAt: number }[]>;
    /** Revokes the access of an application, which has to ask for it again. */
    disconnect(person: Person, clientId: string, source: RequestSource): Promise<void>;
    find(clientId: string): Promise<{ name: string; redirectUris: readonly string[] } | null>;
  };
  /** Absent in a product without agents that act for people. */
  delegations?: {
    list(sub: string): Promise<Delegation[]>;
    end(person: Person, id: string, source: RequestSource): Promise<void>;
  };
  /** Absent without a mail server. */
  verification: AddressVerification | undefined;
  /** Absent if they are not configured. */
  factors: SecondFactors | undefined;
  /** Absent if they are not configured. */
  passkeys: Passkeys | undefined;
  /** Removes what is stored about a deleted person elsewhere. */
  forget(sub: string): Promise<void>;
}

/** The mailed links with which people confirm their addresses. */
export interface AddressVerification {
  /** Whether the person has an e-mail address that is not confirmed. */
  isDue(person: Person & { kind: 'agent' | 'human' }): boolean;
  /**
   * Sends a new link, which replaces the previous one. `false` if it is not due.
   * @throws RATE_LIMITED
   */
  sendAgain(sub: string, source: RequestSource): Promise<boolean>;
}

/** What an authenticator app needs. */
export interface Enrolment {
  secret: string;
  uri: string;
  /** An SVG image of the address. */
  qr: string;
}

/** The second factors of people. `account` is the ID of the person, `label` the user name. */
export interface SecondFactors {
  /** By when a person without one must have one, in Unix milliseconds; null if it is not required. */
  requiredFrom(person: Person & { operatorSince?: number }): Promise<number | null>;
  stateOf(account: string): Promise<{ since: number; recoveryCodesLeft: number } | null>;
  begin(account: string, label: string): Promise<Enrolment>;
  /** What was begun and not confirmed yet. */
  pending(account: string, label: string): Promise<Enrolment | null>;
  /** The recovery codes; null for a wrong code. @throws FACTOR_CHANGED, RATE_LIMITED */
  confirm(account: string, code: string, form: string, source: RequestSource): Promise<string[] | null>;
  /** Null for a wrong code. @throws RATE_LIMITED */
  verify(account: string, code: string, source: RequestSource): Promise<string | null>;
  /** @throws FACTOR_CHANGED */
  renewRecoveryCodes(account: string, form: string, source: RequestSource): Promise<string[]>;
  remove(account: string, source: RequestSource): Promise<boolean>;
}

/** A passkey as its owner sees it. */
export interface Passkey {
  id: string;
  name: string;
  /** Whether it is synchronized to other devices. */
  backedUp: boolean;
  createdAt: number;
  lastUsedAt?: number;
}

/** The passkeys of people. `account` is the ID of the person, `form` the token of the form with the challenge. */
export interface Passkeys {
  /** The script of the pages that use them. */
  script: string;
  list(account: string): Promise<Passkey[]>;
  /** Whether the person may add one: not before the address is confirmed, where a stranger may have registered it. */
  isOpenTo?(person: Person): boolean;
  /** For the browser, as JSON; null if the person has as many as possible. */
  creationOptions(person: Person, form: string): Promise<string | null>;
  /** Null for an invalid or repeated response of the browser. */
  add(
    account: string,
    created: { form: string; credential: string; name: string },
    source: RequestSource,
  ): Promise<Passkey | null>;
  rename(account: string, id: string, name: string, source: RequestSource): Promise<boolean>;
  /** `last` if the passkey stays, because it is the last way to sign in. */
  remove(account: string, id: string, source: RequestSource): Promise<string>;
}

/** An application with access to the data of a person. */
export interface Application {
  clientId: string;
  /** Its name, or else its address. */
  name: string;
  scopes: string[];
  resources: ResourceAccess[];
  since: number;
}

/** An agent that acts for a person at an API. */
export interface Delegation {
  id: string;
  /** The name of the agent. */
  agent: string;
  /** The identifier of the API. */
  resource: string;
  /** What it may do there. */
  permits: readonly string[];
  expiresAt: number;
  lastUsedAt?: number;
}

/** An API that an application may use. */
export interface ResourceAccess {
  /** Its identifier. */
  resource: string;
  /** What the application may do there. */
  permits: readonly string[];
}

export type AccountService = ReturnType<typeof createAccountService>;

export function createAccountService({ people, applications, forget }: AccountSources) {
  return {
    /** The latest first; absent in a product without applications. */
    async applications({ id }: Person): Promise<Application[] | undefined> {
      if (!applications) return undefined;
      const connections = await applications.list(id);
      const found = await Promise.all(
        connections.map(async ({ clientId, scopes, resources, updatedAt: since }) => {
          const client = await applications.find(clientId);
          const [address = ''] = client?.redirectUris ?? [];
          return (
            client && { clientId, name: client.name || hostOf(address) || clientId, scopes, resources, since }
          );
        }),
      );
      return found.filter((application) => application !== null).sort((a, b) => b.since - a.since);
    },

    /**
     * Deletes the account. `false` if the password is wrong or was changed in the meantime; `true` also if another request has
     * deleted it.
     * @throws RATE_LIMITED, OVERLOADED
     */
    async delete(person: Person, password: string, source: RequestSource): Promise<boolean> {
      // On a double click, the browser shows the response to the second form, whose account is already deleted.
      if (!(await people.delete(person, password, source))) return people.isDeleted(person.id);
      // Nothing of it is valid any more. After a crash, jobs remove sessions and consents.
      await forget(person.id);
      return true;
    },
  };
}

const hostOf = (address: string): string => (URL.canParse(address) && new URL(address).host) || address;

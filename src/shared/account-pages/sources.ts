import type { Localized } from '../../core/http/messages.js';
import type { RequestSource } from '../../core/http/routes.js';
import type { FactorService } from '../factors/service.js';
import type { PasskeyService } from '../passkeys/service.js';

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
  /** Instead of the browser and the system. */
  device?: Localized;
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
     * In one step, after which nothing issued to the person is valid; `true` also if another request has deleted the account.
     * `false` if the password is wrong or was changed in the meantime.
     * @throws RATE_LIMITED, OVERLOADED
     */
    delete(person: Person, password: string, source: RequestSource): Promise<boolean>;
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
    /** The latest first. */
    list(sub: string): Promise<Application[]>;
    /** Revokes the access of an application, which has to ask for it again. */
    disconnect(person: Person, clientId: string, source: RequestSource): Promise<void>;
  };
  /** Absent in a product without agents that act for people. */
  delegations?: {
    list(sub: string): Promise<Delegation[]>;
    end(person: Person, id: string, source: RequestSource): Promise<void>;
  };
  /** What waits for a decision of the person; absent if agents cannot ask for one. */
  approvals?: {
    list(sub: string): Promise<WaitingApproval[]>;
  };
  /** Absent in a product without agents. */
  agents?: {
    /** Those for which the person answers. */
    list(sub: string): Promise<OwnedAgent[]>;
    stop(person: Person, agent: string, source: RequestSource): Promise<void>;
  };
  /** What agents did for the person, or those for which the person answers. Absent in a product without agents. */
  receipts?: {
    /** Null if the person may not have it. @throws RATE_LIMITED */
    of(person: Person, txn: string, source: RequestSource): Promise<object | null>;
  };
  /** Absent without a mail server. */
  verification: AddressVerification | undefined;
  /** Absent if they are not configured. */
  factors: SecondFactors | undefined;
  /** Absent if they are not configured. */
  passkeys: Passkeys | undefined;
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

/** The second factors of people. */
export interface SecondFactors
  extends Pick<
    FactorService,
    'stateOf' | 'begin' | 'pending' | 'confirm' | 'verify' | 'renewRecoveryCodes' | 'remove'
  > {
  /** By when a person without one must have one, in Unix milliseconds; null if it is not required. */
  requiredFrom(person: Person & { operatorSince?: number }): Promise<number | null>;
}

/** The passkeys of people. */
export interface Passkeys
  extends Pick<PasskeyService, 'list' | 'creationOptions' | 'add' | 'rename' | 'remove'> {
  /** The script of the pages that use them. */
  script: string;
  /** Whether the person may add one: not before the address is confirmed, where a stranger may have registered it. */
  isOpenTo?(person: Person): boolean;
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
  /** Whether the agent has registered itself, so that its name is its own claim. */
  isUnverified: boolean;
  /** Names the receipt of what the agent did. */
  txn: string;
  /** The identifier of the API. */
  resource: string;
  /** What it may do there. */
  permits: readonly string[];
  expiresAt: number;
  lastUsedAt?: number;
}

/** A decision that an agent waits for, with a page of its own. */
export interface WaitingApproval {
  href: string;
  /** The name of the agent. */
  agent: string;
  /** The name of the API. */
  resource: string;
  expiresAt: number;
}

/** An agent for which a person answers. */
export interface OwnedAgent {
  id: string;
  handle: string;
  name: string;
  purpose?: string;
  expiresAt?: number;
  lastUsedAt?: number;
  isStopped: boolean;
  /** Whether the agent has registered itself, so that its name is its own claim. */
  isUnverified: boolean;
  /** Where it acted. */
  uses: readonly { resource: string; lastUsedAt: number; txn: string }[];
}

/** An API that an application may use. */
export interface ResourceAccess {
  /** Its identifier. */
  resource: string;
  /** What the application may do there. */
  permits: readonly string[];
}

import type { Origin } from '../http/scope.js';

/** What this domain needs to know of principals and clients. Provisioning keeps them; the composition root hands them in. */

export interface Principal {
  id: string;
  handle: string;
  kind: 'agent' | 'human';
  name?: string;
  /** What was given out under another one is worth nothing any more. */
  epoch?: number;
  /** When the operator invited it, if that is how it came. */
  invitedAt?: number;
  updatedAt: number;
}

export interface Client {
  id: string;
  name: string;
  redirectUris: readonly string[];
  /** Absent for public clients. */
  secretHash?: string;
  /** While it is valid: the one before. */
  previousSecretHash?: string;
  principalKinds: readonly ('agent' | 'human')[];
  /** Where people may be sent after signing out. */
  postLogoutRedirectUris: readonly string[];
  /** People who are signed in already are not asked for their consent. */
  trusted?: true;
}

export interface Directory {
  /**
   * The active principal with these credentials, in a time that tells nothing, if it is accepted; else `null`.
   * @throws RATE_LIMITED, OVERLOADED
   */
  authenticate(
    handle: string,
    password: string,
    from: Origin,
    accepts: (principal: Principal) => boolean,
  ): Promise<Principal | null>;
  /** The active principal of a `sub`, else `null`. */
  findPrincipal(sub: string): Promise<Principal | null>;
  /** Whether there is no such principal and never will be. */
  isDeleted(sub: string): Promise<boolean>;
  findClient(clientId: string): Promise<Client | null>;
}

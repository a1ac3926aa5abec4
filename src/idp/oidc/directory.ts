import type { RequestSource } from '../../core/http/routes.js';
import type { Effect } from '../../core/ops/commit.js';
import type { FactorService } from '../../shared/factors/service.js';
import type { PasskeyService } from '../../shared/passkeys/service.js';
import type { AgentUse } from '../provisioning/agent-uses.js';
import type { PrincipalDirectory } from '../provisioning/directory.js';
import type { Principals } from '../provisioning/principals.js';
import type { ClientDocument, PrincipalDocument } from '../provisioning/store.js';
import type { Permission } from './permits.js';

/** Access to principals and clients. */

/** A principal with the names of its groups, as they are now, and an agent with its permissions. */
export interface Principal extends PrincipalDocument {
  groups: readonly string[];
  permissions?: readonly Permission[];
  /** What people call the owner of an agent. */
  ownerName?: string | undefined;
}

/** Whether the principal has registered itself, so that its name is its own claim. */
export const isSelfRegistered = ({
  invitedAt,
  mintedAt,
  operatorSince,
}: Pick<Principal, 'invitedAt' | 'mintedAt' | 'operatorSince'>): boolean =>
  (invitedAt ?? mintedAt ?? operatorSince) === undefined;

/** One that is registered, or one whose identifier is the address of its metadata. */
export interface Client extends Omit<ClientDocument, 'origin' | 'createdAt'> {
  /** How it became known, if the operator has not registered it: its name is then its own claim. */
  origin?: 'dynamic' | 'metadata';
  /** The agent that the client is: people let it act for them, and it gets no token for anything else. */
  agent?: Principal;
}

export type AgentClient = Client & { agent: Principal };

export const isAgent = (client: Client): client is AgentClient => client.agent !== undefined;

/** What every client has that is an agent. */
export const asAgent = (agent: Principal) => ({
  name: agent.name ?? agent.handle,
  principalKinds: ['human' as const],
  strict: true as const,
  agent,
});

/** An agent as a client with its `sub`. It is never a public one: without a key, it has its password. */
export const clientOfAgent = (agent: Principal): AgentClient => ({
  id: agent.id,
  redirectUris: agent.redirectUris ?? [],
  postLogoutRedirectUris: [],
  jwks: (agent.keys ?? []).map(({ jwk }) => jwk),
  ...asAgent(agent),
});

export const isSub = (text: string): boolean => /^u_[0-9a-f]{32}$/.test(text);

/** Whether the client cannot authenticate, because it has neither a secret nor a key. */
export const isPublicClient = ({
  secretHash,
  jwks,
  jwksUri,
}: Pick<Client, 'secretHash' | 'jwks' | 'jwksUri'>): boolean =>
  secretHash === undefined && jwks === undefined && jwksUri === undefined;

export interface Directory {
  /** The agents that some workloads may be, as far as they are active. */
  agentsWithRules(): Promise<readonly PrincipalDocument[]>;
  authenticate(...given: Parameters<Principals['authenticate']>): Promise<Principal | null>;
  /** The active principal of a `sub`, else `null`. */
  findPrincipal(sub: string): Promise<Principal | null>;
  findByName: PrincipalDirectory['findByName'];
  isDeleted: PrincipalDirectory['isDeleted'];
  /** As it is known, without a request to another host. */
  findClient(clientId: string): Promise<Client | null>;
  /**
   * The same for a client that presents itself, whose metadata may have to be fetched from its host.
   * @param allowsStale whether metadata of the last day is used while the host does not respond
   * @throws RATE_LIMITED, OVERLOADED
   */
  resolveClient(
    clientId: string,
    from: { ip: string; allowsStale: boolean },
  ): Promise<Client | { problem: string } | null>;
  /** After a sign-in or the issue of tokens. */
  recordUse(client: Client): Promise<void>;
  /** The same for an agent; it does not wait. */
  recordAgentUse(agent: Pick<PrincipalDocument, 'id' | 'lastUsedAt' | 'mintedAt'>, at?: AgentUse): void;
}

/**
 * Creates a person.
 * @throws handle_taken, VALIDATION_ERROR, WEAK_PASSWORD, RATE_LIMITED, OVERLOADED
 */
export type SignUp = (
  input: { handle: string; password: string; name?: string },
  source: RequestSource,
) => Promise<Principal>;

/** The mail that asks a person for an approval, for the commit of the request; undefined without an address. */
export type ApprovalMail = (
  person: Principal,
  about: { id: string; agent: string; resource: string; link: string; expiresAt: number },
) => Effect | undefined;

/** The second factor of people. */
export interface SecondFactor extends Pick<FactorService, 'verify' | 'begin' | 'pending' | 'confirm'> {
  isEnrolled(sub: string): Promise<boolean>;
  /** Whether the operator requires one of this person, who has none. */
  mustEnrol(principal: Principal): Promise<boolean>;
  /**
   * Whether the person has to confirm the address before a factor is set up. Sends the link.
   * @throws RATE_LIMITED
   */
  awaitsConfirmation(principal: Principal, source: RequestSource): Promise<boolean>;
}

/** The passkeys of people. */
export interface SignInPasskeys extends Pick<PasskeyService, 'requestOptions' | 'has' | 'verify'> {
  /** The script of the sign-in page. */
  script: string;
}

/** Sign-up with a passkey instead of a password. `form` is the token of the form with the challenge. */
export interface PasskeySignUp {
  /** The script of the sign-up page. */
  script: string;
  /** What the script passes to the browser, as JSON, after it has filled in the user name. */
  creationOptions(form: string): string;
  /**
   * Creates a person with the passkey that the browser has created. Null for an invalid or repeated response.
   * @throws handle_taken, VALIDATION_ERROR, RATE_LIMITED
   */
  create(
    input: { handle: string; name?: string; form: string; credential: string },
    source: RequestSource,
  ): Promise<Principal | null>;
}

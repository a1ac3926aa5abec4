import type { Origin } from '../../core/http/scope.js';
import type { AuditRecord, Operator } from '../../core/ops/audit.js';
import type { AuditSearch } from '../../core/ops/audit-search.js';
import type { Estimate, Page } from '../../core/storage/collection.js';
import type { Outbox } from '../../shared/console-kit/outbox.js';

/** What the console shows and changes. Other domains provide it; the product passes it on. */
export interface ConsoleSources {
  principals: PrincipalSource;
  links: LinkSource;
  clients: ClientSource;
  sessions: {
    /** The valid sessions of a user, the newest first. */
    list(principal: Pick<Principal, 'id' | 'epoch'>): Promise<Session[]>;
    end(sid: string): Promise<boolean>;
  };
  consents: { list(sub: string): Promise<Consent[]> };
  delegations: {
    /** The valid ones that a person has given, or that an agent has got. */
    list(of: { person: string } | { agent: string }): Promise<Delegation[]>;
    end(id: string, by: { ip: string; by: string }): Promise<boolean>;
  };
  /** Absent unless clients may name themselves. */
  metadataClients?: MetadataClientSource | undefined;
  resources: { list(after?: string, limit?: number): Promise<Page<Resource>> };
  logoutFailures: LogoutFailures;
  audit: AuditSearch & { record(entry: Omit<AuditRecord, 'id' | 'at'>): Promise<void> };
  /** Absent without a mail server. */
  mails?: Outbox | undefined;
  /** The published keys. */
  keys: readonly { id: string; algorithm: string; use: 'current' | 'next' | 'previous' }[];
}

/** What a person has allowed an application. */
export interface Consent {
  clientId: string;
  scopes: readonly string[];
  resources: readonly { resource: string; scopes: readonly string[] }[];
  updatedAt: number;
}

/** An agent that acts for a person at an API. */
export interface Delegation {
  delegation: {
    id: string;
    resource: string;
    scopes: readonly string[];
    maxDepth: number;
    expiresAt: number;
    lastUsedAt?: number;
  };
  agent: Pick<Principal, 'id' | 'handle'>;
  person: Pick<Principal, 'id' | 'handle'>;
}

/** An application that publishes its own metadata. */
export interface MetadataClient {
  id: string;
  clientId: string;
  name: string;
  firstUsedAt?: number;
  lastUsedAt?: number;
  blockedAt?: number;
}

export interface MetadataClientSource {
  list(query: {
    prefix?: string | undefined;
    after: string | undefined;
    limit: number;
  }): Promise<Page<MetadataClient>>;
  findListed(id: string): Promise<MetadataClient | null>;
  setBlocked(id: string, isBlocked: boolean, from: Origin): Promise<MetadataClient | null>;
}

/** A public key of an application or an agent, which only commands on the host change. */
export interface PublicKey {
  crv: string;
  kid?: string;
}

/** An API. */
export interface Resource {
  id: string;
  identifier: string;
  name: string;
  scopes: readonly { name: string; sensitive?: true }[];
  tokenLifetimeSeconds: number;
  principalKinds: readonly Kind[];
  admitsSelfRegistered?: true;
  updatedAt: number;
}

export type Kind = 'agent' | 'human';
export type State = 'invited' | 'active' | 'disabled' | 'deleted';

export interface Principal {
  id: string;
  handle: string;
  kind: Kind;
  state: State;
  name?: string;
  epoch?: number;
  operatorSince?: number;
  linkExpiresAt?: number;
  /** Of an agent. */
  keys?: readonly { id: string; jwk: PublicKey; addedAt: number }[];
  createdAt: number;
  updatedAt: number;
}

export interface Session {
  id: string;
  authTime: number;
  createdAt: number;
  expiresAt: number;
}

export interface PrincipalSource {
  /** Ordered by handle. */
  list(query: {
    prefix?: string | undefined;
    kind?: Kind | undefined;
    state?: State | undefined;
    after?: string | undefined;
    limit: number;
  }): Promise<Page<Principal>>;
  estimate(): Promise<Estimate>;
  get(sub: string): Promise<Principal | null>;
  findByHandle(handle: string): Promise<Principal | null>;
  /** @throws wrong_state */
  disable(sub: string, from: Origin): Promise<Principal | null>;
  /** @throws wrong_state */
  enable(sub: string, from: Origin): Promise<Principal | null>;
  deleteAgent(sub: string, from: Origin): Promise<Principal | null>;
  deleteHuman(sub: string, from: Origin): Promise<Principal | null>;
  /** @throws handle_taken, VALIDATION_ERROR, RATE_LIMITED */
  mintAgent(
    input: { handle: string; name?: string },
    from: Origin,
  ): Promise<{ agent: Principal; password: string }>;
  /** The new password; `null` when the agent is not active or has changed. */
  rotate(agent: Principal, from: Origin): Promise<string | null>;
}

export interface Link {
  url: string;
  expiresAt: number;
}

export interface LinkSource {
  /** @throws invalid_days, handle_taken, VALIDATION_ERROR, RATE_LIMITED */
  invite(input: { handle: string; name?: string; days?: number }, from: Origin): Promise<Link>;
  /** `null` unless the principal is human and active. */
  reset(person: Principal, from: Origin): Promise<Link | null>;
  /** Ends an invitation; `null` if there is none. */
  withdraw(sub: string, from: Origin): Promise<Principal | null>;
}

export interface Client {
  id: string;
  name: string;
  redirectUris: string[];
  postLogoutRedirectUris: string[];
  secretHash?: string;
  previousSecretUntil?: number;
  principalKinds: Kind[];
  trusted?: true;
  strict?: true;
  device?: true;
  logoUri?: string;
  backchannelLogoutUri?: string;
  idTokenAlg?: 'ES256';
  jwks?: readonly PublicKey[];
  jwksUri?: string;
  origin?: 'dynamic';
  expiresAt?: number;
  createdAt: number;
}

export interface ClientInput {
  name: string;
  redirectUris: string[];
  postLogoutRedirectUris: string[];
  principalKinds: Kind[];
  trusted: boolean;
  /** Absent: keeps the stored one. */
  strict?: boolean;
  /** Absent: keeps the stored one. */
  device?: boolean;
  /** An empty one removes it. */
  logoUri: string;
  /** An empty one removes it. */
  backchannelLogoutUri: string;
  /** Absent: keeps the stored one, or else EdDSA. */
  idTokenAlg?: string;
}

export interface ClientSource {
  list(after: string | undefined, limit: number): Promise<Page<Client>>;
  estimate(): Promise<Estimate>;
  find(clientId: string): Promise<Client | null>;
  /** @throws VALIDATION_ERROR, invalid_client_metadata */
  create(
    input: ClientInput & { isPublic: boolean },
    from: Origin,
  ): Promise<{ client: Client; secret: string | null }>;
  /** @throws VALIDATION_ERROR, invalid_client_metadata */
  update(clientId: string, change: ClientInput, from: Origin): Promise<Client | null>;
  rotate(clientId: string, options: { atOnce: boolean }, from: Origin): Promise<string | null>;
  delete(clientId: string, from: Origin): Promise<Client | null>;
}

/** Notices about ended sessions that applications have not accepted (Back-Channel Logout). */
export interface LogoutFailures {
  /** The latest first. @throws VALIDATION_ERROR for an invalid `after` */
  list(query: { after: string | undefined; limit: number }): Promise<Page<LogoutFailure>>;
  /** Up to `limit`. */
  count(limit: number): Promise<number>;
  find(id: string): Promise<LogoutFailure | null>;
  /** Makes the next attempt now. `false` if there is no such notice any more. */
  retry(id: string): Promise<boolean>;
}

export interface LogoutFailure {
  id: string;
  clientId: string;
  sub: string;
  since: number;
  attempts: number;
  reason: string;
  /** Absent if it was given up. */
  nextAttemptAt?: number;
}

/** The origin of a change by an operator. */
export const originOfOperator = ({ name, ip }: Operator): Origin => ({
  ip,
  by: name,
  isDisconnected: () => false,
});

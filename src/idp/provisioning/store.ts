import type { Clock } from '../../core/kernel/clock.js';
import type { PublicJwk } from '../../core/kernel/public-jwk.js';
import type { Effect } from '../../core/ops/commit.js';
import type { Metrics } from '../../core/ops/metrics.js';
import type { UsedLink } from '../../core/ops/used-links.js';
import { type Collection, nullIfTaken, type Store } from '../../core/storage/collection.js';

export const KINDS = ['agent', 'human'] as const;
export type Kind = (typeof KINDS)[number];

/**
 * - `invited`: has a link but no password, and cannot sign in.
 * - `disabled`: treated as unknown from the next request on.
 * - `deleted`: keeps only its handle reserved, permanently.
 */
export type PrincipalState = 'invited' | 'active' | 'disabled' | 'deleted';

/** A value of metadata. */
export type MetadataValue = string | number | boolean | readonly string[];
export type Metadata = Readonly<Record<string, MetadataValue>>;

export interface PrincipalDocument {
  /** `sub`: opaque and never reused. */
  id: string;
  /** Canonical; unique across kinds, permanently. */
  handle: string;
  kind: Kind;
  /** The address of a person beside the handle, with its domain in ASCII. Absent: the handle, if that is an address. */
  email?: string;
  name?: string;
  state: PrincipalState;
  /** What the operator stores about the principal, for claims. */
  metadata?: Metadata;
  /** Incremented by every change of the metadata, which is conditional on the value it read. */
  metadataRevision?: number;
  /** argon2id of a chosen password. */
  passwordHash?: string;
  /** SHA-256 of a generated password: 256 random bits do not require a slow hash. */
  secretHash?: string;
  /** The public keys with which an agent authenticates at /token; absent without any. */
  keys?: AgentKey[];
  /** The workloads that are the agent; absent without any. */
  workloads?: WorkloadRule[];
  /** Their number, by which agents with rules are found. */
  workloadRules?: number;
  /** Incremented by every change of the keys and the rules, which is conditional on the value it read. */
  keyRevision?: number;
  /** Present after a sign-up with a passkey, until a link sets a password. */
  passkeyOnly?: true;
  /** Incremented to invalidate all codes, tokens and sessions issued before. */
  epoch?: number;
  /** Incremented by every change of passkeys and of the second factor, and with a new owner. */
  signInRevision?: number;
  /** SHA-256 of the link that sets a password: an invitation or a reset. */
  linkHash?: string;
  linkExpiresAt?: number;
  /** SHA-256 of the mailed link for a forgotten password, beside which `linkHash` remains valid. */
  mailedLinkHash?: string;
  mailedLinkExpiresAt?: number;
  /** SHA-256 of the mailed link that verifies the e-mail address. */
  verifyHash?: string;
  verifyExpiresAt?: number;
  /** When a link that was mailed to the present address was used. */
  emailVerifiedAt?: number;
  /** When an operator gave an existing account another address: until that is verified, no link for a password is mailed. */
  emailSetAt?: number;
  /** The last used link. Until its expiry, the request that has used it can be repeated. `setup`: to make the first operator. */
  usedLink?: UsedLink & { purpose: 'setup' | 'invitation' | 'reset' | 'verification' };
  /** Present when the principal was invited, so that the operator chose the handle. */
  invitedAt?: number;
  /** The client to which the person continues from the invitation. */
  application?: string;
  /** Present when the operator created the agent. */
  mintedAt?: number;
  /** The operator who did, or the address of the request: `cli` for a command. */
  mintedBy?: string;
  /** Who answers for the agent: the `sub` of a person, or `group:` with a name. It stops with them. Absent: the operators. */
  owner?: string;
  /** What the agent is for, in the words of its creator. */
  purpose?: string;
  /** Where people who let the agent act for them return to: the agent is a client then. Only commands on the host set these. */
  redirectUris?: string[];
  /** The address of the metadata with which the agent presents itself as a client. */
  clientMetadata?: string;
  /** Where the agent is told that a person has decided (CIBA ping mode). Only commands on the host set it. */
  notificationEndpoint?: string;
  /** When the agent ends. An agent that registered itself has it, and moves it with each use. */
  expiresAt?: number;
  /** When the agent last got a code or a token, with a precision of an hour. */
  lastUsedAt?: number;
  /** Present when the operator vouches for the address: in the handle of an agent, or beside the one of an invited person. */
  vouchedAt?: number;
  /** Present for an operator. Only commands on the host set it, or the use of a link that they print. */
  operatorSince?: number;
  /** SHA-256 of the invitation that makes an operator. Another invitation of the same principal does not. */
  operatorLinkHash?: string;
  createdAt: number;
  updatedAt: number;
}

export interface AgentKey {
  /** Its thumbprint (RFC 7638). */
  id: string;
  jwk: PublicJwk;
  addedAt: number;
}

/** Which tokens of another issuer are accepted as a proof of the agent. */
export interface WorkloadRule {
  /** `wlr_…` */
  id: string;
  /** Exactly as in its tokens. */
  issuer: string;
  /** The `sub` of its tokens, in which `*` stands for any text. */
  subject: string;
  /** A member of `aud`; absent: this provider. */
  audience?: string;
  /** Other claims, with exactly these values. */
  claims?: Record<string, string>;
  /** Its keys, if they are not read from the issuer. */
  jwks?: PublicJwk[];
  addedAt: number;
}

/** A rule of a workload in one line. */
export const textOfRule = ({ id, issuer, subject, audience, claims = {}, jwks }: WorkloadRule): string =>
  [
    ...[id, issuer, subject],
    ...(audience === undefined ? [] : [`aud=${audience}`]),
    ...Object.entries(claims).map((pair) => pair.join('=')),
    ...(jwks ? [`${jwks.length} stored keys`] : []),
  ].join(' ');

/** The fields to unset where no link may set a password any more. */
export const PASSWORD_LINK_FIELDS = [
  'linkHash',
  'linkExpiresAt',
  'mailedLinkHash',
  'mailedLinkExpiresAt',
] as const;

/** The fields to unset where the address must not be verified any more, or is. */
export const VERIFICATION_FIELDS = ['verifyHash', 'verifyExpiresAt'] as const;

/** The fields to unset where a principal must not remain or become an operator. */
export const OPERATOR_FIELDS = ['operatorSince', 'operatorLinkHash'] as const;

export interface ClientDocument {
  /** `cid_…` */
  id: string;
  name: string;
  redirectUris: string[];
  postLogoutRedirectUris: string[];
  /** Absent for public clients and those with keys. */
  secretHash?: string;
  /** The secret before the last rotation, valid until `previousSecretUntil`. */
  previousSecretHash?: string;
  previousSecretUntil?: number;
  /** The kinds of principals that may sign in to the client. */
  principalKinds: Kind[];
  /** The groups whose members alone may sign in to the client; absent: everyone of these kinds. */
  admittedGroups?: string[];
  /** The groups in its claims: `all`, `none`, or names with the names that it gets. */
  groupsClaim?: string;
  /** The claims that it gets from metadata: `claim:type=name`, separated by commas. */
  claims?: string;
  /** Consent is not required for this client. */
  trusted?: true;
  /** It must use PKCE, and people do not use HTTP Basic with it. */
  strict?: true;
  /** The security profile that it has to keep, beyond what it would do by itself: FAPI 2.0. Only commands on the host set it. */
  profile?: 'fapi2';
  /** People may sign in to the client on a device without a browser (RFC 8628). Only commands on the host set it. */
  device?: true;
  /** An image that the pages of sign-in and consent show (RFC 7591 §2). */
  logoUri?: string;
  /** The signature of its id_tokens; EdDSA if absent (OpenID Connect Registration §2). */
  idTokenAlg?: 'ES256';
  /** Where the client is notified that a session has ended (Back-Channel Logout §2.2). */
  backchannelLogoutUri?: string;
  /** The keys of its assertions, or where it publishes them (RFC 7591 §2): one of the two, and then no secret. */
  jwks?: readonly PublicJwk[];
  jwksUri?: string;
  /** How it was registered, if not by the operator (RFC 7591). */
  origin?: 'dynamic';
  /** It has stated the grant type `refresh_token`, so each sign-in to it includes `offline_access`. */
  refreshes?: true;
  /** When a client that registered itself ends, unless it is used before. */
  expiresAt?: number;
  /** Present until the first sign-in to a client that registered itself. */
  unused?: true;
  /** The last sign-in or token, to the day. */
  lastUsedAt?: number;
  createdAt: number;
}

export type PrincipalCollection = Collection<PrincipalDocument>;
export type ClientCollection = Collection<ClientDocument>;

export function principalCollection(store: Store): PrincipalCollection {
  return store.collection<PrincipalDocument>('principals', {
    unique: ['handle'],
    // Three of them are for the lists of the console and of the operators.
    indexes: [
      ['createdAt'],
      ['kind', 'handle'],
      ['state', 'handle'],
      ['operatorSince'],
      ['email'],
      ['owner'],
      ['workloadRules'],
    ],
    fields: ['linkHash', 'mailedLinkHash', 'verifyHash', 'operatorLinkHash', 'clientMetadata'],
    text: ['handle', 'name', 'email'],
    numbers: [
      ...([
        'createdAt',
        'operatorSince',
        'epoch',
        'keyRevision',
        'workloadRules',
        'signInRevision',
        'metadataRevision',
      ] as const),
      ...(['linkExpiresAt', 'mailedLinkExpiresAt', 'verifyExpiresAt'] as const),
    ],
    view: {
      name: 'principal_view',
      columns: {
        id: ['text', 'id'],
        handle: ['text', 'handle'],
        kind: ['text', 'kind'],
        name: ['text', 'name'],
        state: ['text', 'state'],
        created_at: ['time', 'createdAt'],
        email_verified_at: ['time', 'emailVerifiedAt'],
        is_operator: ['presence', 'operatorSince'],
        email: ['text', 'email'],
      },
    },
  });
}

/**
 * What ends with the sessions of a principal, for the commit that increments its epoch. The epoch of `principal` is a condition of that commit.
 */
export type EndSessions = (
  principal: Pick<PrincipalDocument, 'id' | 'epoch'>,
  by: { ip: string; by?: string },
) => Promise<Effect>;

/** Whether an agent has reached its end. */
export const hasEnded = ({ expiresAt }: Pick<PrincipalDocument, 'expiresAt'>, now: number): boolean =>
  expiresAt !== undefined && expiresAt <= now;

/** Finds the active principal of a `sub`, else `null`. */
export const findActive =
  (principals: PrincipalCollection, clock: Clock) =>
  async (sub: string): Promise<PrincipalDocument | null> => {
    const principal = await principals.findOne({ id: sub });
    return principal?.state === 'active' && !hasEnded(principal, clock.now()) ? principal : null;
  };

export function clientCollection(store: Store): ClientCollection {
  return store.collection<ClientDocument>('clients', {
    indexes: [['createdAt'], ['expiresAt']],
    fields: ['secretHash'],
    text: ['name'],
    numbers: ['createdAt', 'expiresAt'],
  });
}

interface AddressDocument {
  id: 'issuer';
  url: string;
}

/**
 * The last known address of a provider in development: a command prints links to it, but cannot know the port that the
 * server got from a flag, or the application that contains it.
 */
export function createLastKnownAddress(store: Store) {
  const addresses = store.collection<AddressDocument>('addresses');
  const id = 'issuer';
  return {
    /** @param url the issuer */
    async remember(url: string) {
      // When two servers start at once, either address is valid.
      if (!(await addresses.updateOne({ id }, { set: { url } }))) {
        await addresses.insert({ id, url }).catch(nullIfTaken);
      }
    },
    recall: async (): Promise<string | undefined> => (await addresses.findOne({ id }))?.url,
  };
}

const MAX_COUNTED_AGENTS = 10_000;

/** Declares the metrics of the accounts. */
export function measurePrincipals(metrics: Metrics, principals: PrincipalCollection): void {
  metrics.storeGauge(
    {
      name: 'principals',
      help: 'People and agents, with the handles of deleted ones; beyond 10,000 an estimate.',
    },
    async () => [{ labels: {}, value: (await principals.estimate()).count }],
  );
  metrics.storeGauge(
    {
      name: 'agents',
      help: `Agents, with the handles of deleted ones, counted up to ${MAX_COUNTED_AGENTS}.`,
    },
    async () => [{ labels: {}, value: await principals.count({ kind: 'agent' }, MAX_COUNTED_AGENTS) }],
  );
}

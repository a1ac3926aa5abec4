import type { RequestSource } from '../../core/http/routes.js';
import { DAY, isRecent, SECOND } from '../../core/kernel/clock.js';
import { invalidFields } from '../../core/kernel/errors.js';
import { defined } from '../../core/kernel/fields.js';
import { readJwkSet } from '../../core/kernel/public-jwk.js';
import { newId, newToken, sha256 } from '../../core/kernel/secrets.js';
import { actorOf, changeDetail } from '../../core/ops/audit.js';
import type { Effect } from '../../core/ops/commit.js';
import type { JobLog } from '../../core/ops/jobs.js';
import { createPurge, PURGE_MARGIN_MS } from '../../core/ops/purge.js';
import type { Estimate, Page, Write } from '../../core/storage/collection.js';
import { allOf, readPage, searchFirst } from '../../core/storage/pages.js';
import { applyChange } from '../../core/storage/semantics.js';
import type { Groups } from '../groups/service.js';
import {
  documentUriProblem,
  isLogoUri,
  LOGO_RULE,
  noticeUriProblem,
  redirectUriProblem,
  type UriRules,
  uriProblems,
} from './client-uris.js';
import { provisioningErrors } from './errors.js';
import { parseClaims } from './metadata.js';
import type { Dependencies } from './principals.js';
import type { ClientCollection, ClientDocument, Kind } from './store.js';

export const ID_TOKEN_ALGORITHMS = ['EdDSA', 'ES256'] as const;
export type IdTokenAlgorithm = (typeof ID_TOKEN_ALGORITHMS)[number];

export interface ClientInput {
  name: string;
  redirectUris: string[];
  postLogoutRedirectUris: string[];
  isPublic: boolean;
  principalKinds: Kind[];
  /** The groups that alone may sign in; an empty list admits all. */
  admittedGroups?: string[] | undefined;
  /** The groups in its claims: `all`, `none`, or names like `admins,staff=Employees`. */
  groupsClaim?: string | undefined;
  /** The claims that it gets from metadata, like `department,level:number=grade`; an empty text removes them. */
  claims?: string | undefined;
  /** Never set over HTTP. */
  trusted?: boolean | undefined;
  /** Whether it must use PKCE, and people must use the sign-in form. */
  strict?: boolean | undefined;
  /** The security profile; an empty text removes it. Never set over HTTP. */
  profile?: 'fapi2' | '' | undefined;
  /** Whether it may use the device flow. Never set over HTTP, because its codes can be used for phishing. */
  device?: boolean | undefined;
  /** An https address; an empty one removes it. */
  logoUri?: string | undefined;
  /** Where the client is notified that a session has ended; an empty one removes it. */
  backchannelLogoutUri?: string | undefined;
  /** The signature of its id_tokens, one of `ID_TOKEN_ALGORITHMS`; the provider must have a key for it. */
  idTokenAlg?: unknown;
  /** The keys of its assertions as a JWK Set, or the https address where it publishes them. The client then has no secret. */
  jwks?: unknown;
  jwksUri?: string | undefined;
}

/** `origin` of a client that registered itself, which ends when it is not used. */
export type NewClient = ClientInput &
  Pick<ClientDocument, 'origin' | 'refreshes'> & {
    /** Default: a new one. */
    id?: string;
    /** How long it is kept before the first sign-in. Default: 30 days. */
    unusedLifetimeMs?: number;
  };

/** The fields to change; absent and undefined ones keep their value. */
export type ClientChange = {
  [Field in Exclude<keyof ClientInput, 'isPublic'>]?: ClientInput[Field] | undefined;
};

export interface CreatedClient {
  client: ClientDocument;
  secret: string | null;
}

export type Clients = ReturnType<typeof createClients>;

export interface ClientDependencies extends Dependencies {
  uriRules: UriRules;
  /** The algorithms for which the provider has a key. */
  idTokenAlgorithms: readonly IdTokenAlgorithm[];
  log: Pick<JobLog, 'warn'>;
  endClient: EndClient;
  groups: Pick<Groups, 'readFilter' | 'refuseUnknown'>;
  /** The claims that the provider itself defines. */
  reservedClaims: readonly string[];
}

/** What ends with a client, for the commit that removes or blocks it. */
export type EndClient = (id: string, by: { ip: string; by?: string }) => Promise<Effect>;

export function createClients(
  clients: ClientCollection,
  { commit, audit, clock, random, ...deps }: ClientDependencies,
) {
  const { uriRules, idTokenAlgorithms, log, endClient, groups, reservedClaims } = deps;
  const validate = ({
    redirectUris,
    postLogoutRedirectUris = [],
    device = false,
    logoUri = '',
    backchannelLogoutUri = '',
    idTokenAlg = 'EdDSA',
  }: ClientChange): void => {
    const problem = backchannelLogoutUri === '' ? null : noticeUriProblem(backchannelLogoutUri, uriRules);
    if (redirectUris?.length === 0 && !device)
      throw invalidFields({
        path: 'redirect_uris',
        message: 'must contain at least one URI, like https://app.example.com/callback',
      });
    const details = [
      ...uriProblems('redirect_uris', redirectUris ?? [], uriRules),
      ...uriProblems('post_logout_redirect_uris', postLogoutRedirectUris, uriRules),
      ...(logoUri === '' || isLogoUri(logoUri) ? [] : [{ path: 'logo_uri', message: LOGO_RULE }]),
      ...(problem === null ? [] : [{ path: 'backchannel_logout_uri', message: problem }]),
    ];
    if (details.length > 0) throw invalidFields(...details);
    refuseIdTokenAlg(idTokenAlg, idTokenAlgorithms);
    const open = redirectUris?.find(
      (uri) => redirectUriProblem(uri, { ...uriRules, allowHttp: false }) !== null,
    );
    if (open !== undefined)
      log.warn(
        `The redirect URI ${open} uses http on an address that is not loopback. Production rejects it.`,
      );
  };

  const find = async (clientId: string): Promise<ClientDocument | null> => {
    const client = isClientId(clientId) ? await clients.findOne({ id: clientId }) : null;
    return client?.expiresAt !== undefined && client.expiresAt <= clock.now() ? null : client;
  };

  /** The change with groups and claims as they are stored. @throws VALIDATION_ERROR */
  const readClaims = async <T extends ClientChange>(given: T): Promise<T> => {
    const { admittedGroups, groupsClaim, claims } = given;
    const change =
      claims === undefined ? given : { ...given, claims: parseClaims(claims, reservedClaims, 'claims') };
    if (admittedGroups) await groups.refuseUnknown(admittedGroups, 'admitted_groups');
    if (groupsClaim === undefined) return change;
    return { ...change, groupsClaim: await groups.readFilter(groupsClaim, 'groups_claim') };
  };

  const expired = () => ({ expiresAt: { gt: 0, lte: clock.now() - PURGE_MARGIN_MS } });

  /** The fields of a client with keys, `null` for one without. @throws VALIDATION_ERROR */
  const readKeys = ({ jwks, jwksUri }: ClientChange) => {
    if (jwks === undefined && jwksUri === undefined) return null;
    if (jwks !== undefined && jwksUri !== undefined)
      throw invalidFields({ path: 'jwks_uri', message: 'cannot be combined with jwks' });
    if (jwksUri !== undefined) {
      const problem = documentUriProblem(jwksUri);
      if (problem !== null) throw invalidFields({ path: 'jwks_uri', message: problem });
      return { jwksUri };
    }
    const read = readJwkSet(jwks, false);
    if ('problem' in read) throw invalidFields({ path: 'jwks', message: read.problem });
    return { jwks: read.keys };
  };

  /**
   * @param more writes of the same commit; `null` if one of them has no matching document
   * @throws VALIDATION_ERROR naming every URI that cannot be registered, invalid_client_metadata
   */
  async function create(input: NewClient, source: RequestSource): Promise<CreatedClient>;
  async function create(
    input: NewClient,
    source: RequestSource,
    more: readonly Write[],
  ): Promise<CreatedClient | null>;
  async function create(
    { id, isPublic, origin, refreshes, unusedLifetimeMs = UNUSED_LIFETIME_MS, ...given }: NewClient,
    source: RequestSource,
    more: readonly Write[] = [],
  ): Promise<CreatedClient | null> {
    const input = await readClaims(given);
    validate(input);
    const keys = readKeys(input);
    if (input.profile && keys === null) throw invalidFields({ path: 'profile', message: KEYS_FOR_PROFILE });
    if (isPublic && keys !== null) throw invalidFields({ path: 'public', message: PUBLIC_WITH_KEYS });
    const secret = isPublic || keys !== null ? null : newToken(random, 'csec_');
    const now = clock.now();
    const { name, redirectUris, postLogoutRedirectUris, principalKinds } = input;
    const client: ClientDocument = {
      id: id ?? newId('cid_', clock, random),
      name,
      redirectUris,
      postLogoutRedirectUris,
      principalKinds,
      ...keys,
      ...(origin && { origin, unused: true as const, expiresAt: now + unusedLifetimeMs }),
      ...(refreshes && { refreshes }),
      createdAt: now,
      ...(secret !== null && { secretHash: sha256(secret) }),
      ...optionalFields(input),
    };
    const { committed } = await commit([
      clients.inserting(client),
      audit.entry({ event: 'client.created', subject: client.id, ...actorOf(source) }),
      ...more,
    ]);
    return committed ? { client, secret } : null;
  }

  return {
    create,

    /**
     * Returns `null` if unknown. A client keeps a signature for which there is no key.
     * @throws VALIDATION_ERROR naming every URI that cannot be registered, invalid_client_metadata
     */
    async update(
      clientId: string,
      given: ClientChange,
      source: RequestSource,
    ): Promise<ClientDocument | null> {
      const before = await find(clientId);
      if (!before) return null;
      const change = await readClaims(given);
      const keys = readKeys(change);
      if (keys !== null && before.jwks === undefined && before.jwksUri === undefined)
        throw invalidFields({ path: 'jwks' in keys ? 'jwks' : 'jwks_uri', message: OTHER_METHOD });
      if (change.profile && before.jwks === undefined && before.jwksUri === undefined)
        throw invalidFields({ path: 'profile', message: KEYS_FOR_PROFILE });
      if (change.trusted === true && before.origin !== undefined)
        throw invalidFields({ path: 'trusted', message: 'must be no for a client that registered itself' });
      const { idTokenAlg, device = before.device === true, ...others } = change;
      validate({ ...others, device, ...(idTokenAlg !== before.idTokenAlg && { idTokenAlg }) });
      const { name, redirectUris, postLogoutRedirectUris, principalKinds } = change;
      const set = {
        ...defined({ name, redirectUris, postLogoutRedirectUris, principalKinds }),
        ...keys,
        ...optionalFields(change),
      };
      const unset = [
        ...OPTIONAL_FIELDS.filter((field) => change[field] !== undefined && !isStored(change[field])),
        ...(keys === null ? [] : (['jwks' in keys ? 'jwksUri' : 'jwks'] as const)),
      ];
      const write = { set, ...(unset.length > 0 && { unset }) };
      const updated = applyChange(before, write);
      const detail = changeDetail(auditedFields(before), auditedFields(updated));
      const { committed } = await commit([
        clients.changing({ id: clientId }, write),
        audit.entry({ event: 'client.updated', subject: clientId, ...actorOf(source), detail }),
      ]);
      return committed ? updated : null;
    },

    /**
     * Creates a new secret; the old one remains valid for a day, unless `atOnce`. `null` if the client is unknown, has
     * no secret, or is rotated concurrently.
     */
    async rotate(
      clientId: string,
      { atOnce }: { atOnce: boolean },
      source: RequestSource,
    ): Promise<string | null> {
      const client = isClientId(clientId) ? await clients.findOne({ id: clientId }) : null;
      const { secretHash: previousSecretHash } = client ?? {};
      if (previousSecretHash === undefined) return null;
      const secret = newToken(random, 'csec_');
      const secretHash = sha256(secret);
      const { committed } = await commit([
        clients.changing(
          { id: clientId, secretHash: previousSecretHash },
          atOnce
            ? { set: { secretHash }, unset: ['previousSecretHash', 'previousSecretUntil'] }
            : { set: { secretHash, previousSecretHash, previousSecretUntil: clock.now() + DAY } },
        ),
        audit.entry({ event: 'client.rotated', subject: clientId, ...actorOf(source) }),
      ]);
      return committed ? secret : null;
    },

    async delete(clientId: string, source: RequestSource): Promise<ClientDocument | null> {
      const found = isClientId(clientId) ? await clients.findOne({ id: clientId }) : null;
      if (!found) return null;
      const by = actorOf(source);
      const { committed } = await commit([
        clients.deleting({ id: clientId }),
        await endClient(clientId, by),
        audit.entry({ event: 'client.deleted', subject: clientId, ...by }),
      ]);
      return committed ? found : null;
    },

    /** Keeps a client that registered itself for another 30 days. Called after each use. */
    async recordUse(used: Pick<ClientDocument, 'id' | 'unused' | 'expiresAt' | 'lastUsedAt'>) {
      const { id, unused, expiresAt, lastUsedAt = 0 } = used;
      const now = clock.now();
      // At most one write a day.
      if (!unused && isRecent(lastUsedAt, { now, within: DAY })) return;
      if (expiresAt === undefined)
        return void (await clients.updateOne({ id }, { set: { lastUsedAt: now } }));
      const set = { lastUsedAt: now, expiresAt: now + UNUSED_LIFETIME_MS };
      await clients.updateOne({ id, expiresAt: { gt: 0 } }, { set, unset: ['unused'] });
    },

    /** Deletes the clients that registered themselves and were not used. */
    purge: createPurge(clients, { where: expired, sort: 'expiresAt', everySeconds: DAY / SECOND }),

    /** Includes the previous secret only while that is valid. */
    async find(clientId: string): Promise<ClientDocument | null> {
      const client = await find(clientId);
      if (client?.previousSecretUntil === undefined || client.previousSecretUntil > clock.now())
        return client;
      const { previousSecretHash, previousSecretUntil, ...current } = client;
      return current;
    },

    /** By its identifier, or by a name that no other one has. */
    async findNamed(text: string): Promise<ClientDocument | null> {
      if (isClientId(text)) return find(text);
      const found = (await allOf(clients, { sort: 'createdAt' })).filter(({ name }) => name === text);
      return found.length === 1 ? (found[0] ?? null) : null;
    },

    /** @param after the `next` of the previous page. @throws VALIDATION_ERROR when it is invalid */
    estimate: (): Promise<Estimate> => clients.estimate(),

    /** Finds clients by any part of their name, after the one with this identifier. */
    search: (text: string, limit: number): Promise<ClientDocument[]> =>
      searchFirst(clients, { text, limit, identified: isClientId(text) ? find(text) : null }),

    list: (after?: string, limit?: number): Promise<Page<ClientDocument>> =>
      readPage(clients, { sort: 'createdAt', after, limit }),
  };
}

const OPTIONAL_FIELDS = [
  ...(['trusted', 'strict', 'profile', 'device', 'logoUri', 'backchannelLogoutUri', 'idTokenAlg'] as const),
  ...(['admittedGroups', 'groupsClaim', 'claims'] as const),
];
type OptionalField = (typeof OPTIONAL_FIELDS)[number];

/** Whether the value of an optional field is stored; others remove it. */
const isStored = (value: unknown): boolean =>
  Array.isArray(value)
    ? value.length > 0
    : value !== undefined && ![false, '', 'EdDSA'].includes(value as string);

const optionalFields = (change: ClientChange): Partial<Pick<ClientDocument, OptionalField>> =>
  Object.fromEntries(
    OPTIONAL_FIELDS.filter((field) => isStored(change[field])).map((field) => [field, change[field]]),
  );

/** The fields that `update` changes, as compared by the audit. */
function auditedFields(client: ClientDocument) {
  const { redirectUris, postLogoutRedirectUris, principalKinds, admittedGroups, jwks } = client;
  const { id, secretHash, previousSecretHash, previousSecretUntil, origin, ...others } = client;
  const { expiresAt, unused, lastUsedAt, createdAt, ...fields } = others;
  return {
    ...{ trusted: false, strict: false, device: false, idTokenAlg: 'EdDSA' },
    ...fields,
    redirectUris: redirectUris.join(' '),
    postLogoutRedirectUris: postLogoutRedirectUris.join(' '),
    principalKinds: principalKinds.join(' '),
    admittedGroups: admittedGroups?.join(' '),
    jwks: jwks && JSON.stringify(jwks),
  };
}

/** How long a client that registered itself exists without a use. */
const UNUSED_LIFETIME_MS = 30 * DAY;

const PUBLIC_WITH_KEYS = 'cannot be combined with keys: a client with keys authenticates with them';
const KEYS_FOR_PROFILE =
  'needs a client with keys: FAPI 2.0 has no client secrets. Create one with --jwks or --jwks-uri';
const OTHER_METHOD = 'cannot be set: the client has another authentication method. Create another client';

/** @throws invalid_client_metadata (RFC 7591 §3.2.2) */
function refuseIdTokenAlg(alg: unknown, available: readonly IdTokenAlgorithm[]): void {
  if (available.some((known) => known === alg)) return;
  const message =
    alg === 'ES256'
      ? 'must be EdDSA: ES256 needs a key, so set IDP_ES256_KEY first'
      : `must be ${ID_TOKEN_ALGORITHMS.join(' or ')}`;
  const path = 'id_token_signed_response_alg';
  throw provisioningErrors.invalid_client_metadata({
    message: `${path} ${message}.`,
    details: [{ path, message }],
  });
}

/** Other text is never looked up, because a store may be unable to represent it. */
const isClientId = (text: string): boolean => /^cid_[\w-]{22,}$/.test(text);

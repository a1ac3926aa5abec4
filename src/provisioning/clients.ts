import { isLoopback } from '../config/public-url.js';
import type { Origin } from '../http/scope.js';
import { DAY } from '../kernel/clock.js';
import { type ErrorDetail, invalidFields } from '../kernel/errors.js';
import { newId, newToken, sha256 } from '../kernel/secrets.js';
import { actorOf, changeDetail } from '../ops/audit.js';
import type { JobLog } from '../ops/jobs.js';
import type { Estimate, Page } from '../storage/collection.js';
import { readPage } from '../storage/pages.js';
import { provisioningErrors } from './errors.js';
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
  /** Never set over HTTP. */
  trusted?: boolean;
  /** Whether it may use the device flow. Never set over HTTP, because its codes can be used for phishing. */
  device?: boolean;
  /** An https address; an empty one removes it. */
  logoUri?: string;
  /** Where the client is told that a session has ended; an empty one removes it. */
  backchannelLogoutUri?: string;
  /** The signature of its id_tokens, one of `ID_TOKEN_ALGORITHMS`; the provider must have a key for it. */
  idTokenAlg?: unknown;
}

/** The fields to change; absent fields keep their value. */
export type ClientChange = Partial<Omit<ClientInput, 'isPublic'>>;

export interface Clients {
  /** @throws VALIDATION_ERROR naming every URI that cannot be registered, invalid_client_metadata */
  create(input: ClientInput, from: Origin): Promise<{ client: ClientDocument; secret: string | null }>;
  /**
   * Returns `null` if unknown. A client keeps a signature for which there is no key.
   * @throws VALIDATION_ERROR naming every URI that cannot be registered, invalid_client_metadata
   */
  update(clientId: string, change: ClientChange, from: Origin): Promise<ClientDocument | null>;
  /**
   * Creates a new secret; the old one remains valid for a day, unless `atOnce`. `null` if the client is unknown, has
   * no secret, or is rotated concurrently.
   */
  rotate(clientId: string, options: { atOnce: boolean }, from: Origin): Promise<string | null>;
  delete(clientId: string, from: Origin): Promise<ClientDocument | null>;
  /** Includes the previous secret only while that is valid. */
  find(clientId: string): Promise<ClientDocument | null>;
  /** @param after the `next` of the previous page. @throws VALIDATION_ERROR when it is invalid */
  estimate(): Promise<Estimate>;
  list(after?: string, limit?: number): Promise<Page<ClientDocument>>;
}

export interface ClientDependencies extends Dependencies {
  /** Whether redirect URIs may use http on addresses that are not loopback. */
  allowHttp: boolean;
  /** The algorithms for which the provider has a key. */
  idTokenAlgorithms: readonly IdTokenAlgorithm[];
  log: Pick<JobLog, 'warn'>;
}

export function createClients(
  clients: ClientCollection,
  { audit, clock, random, allowHttp, idTokenAlgorithms, log }: ClientDependencies,
): Clients {
  const validate = ({
    redirectUris,
    postLogoutRedirectUris = [],
    device = false,
    logoUri = '',
    backchannelLogoutUri = '',
    idTokenAlg = 'EdDSA',
  }: ClientChange): void => {
    const problem = backchannelLogoutUri === '' ? null : logoutUriProblem(backchannelLogoutUri, allowHttp);
    if (redirectUris?.length === 0 && !device)
      throw invalidFields({
        path: 'redirect_uris',
        message: 'must contain at least one URI, like https://app.example.com/callback',
      });
    const details = [
      ...uriProblems('redirect_uris', redirectUris ?? [], allowHttp),
      ...uriProblems('post_logout_redirect_uris', postLogoutRedirectUris, allowHttp),
      ...(logoUri === '' || isLogoUri(logoUri) ? [] : [{ path: 'logo_uri', message: LOGO_RULE }]),
      ...(problem === null ? [] : [{ path: 'backchannel_logout_uri', message: problem }]),
    ];
    if (details.length > 0) throw invalidFields(...details);
    refuseIdTokenAlg(idTokenAlg, idTokenAlgorithms);
    const open = redirectUris?.find((uri) => redirectUriProblem(uri, false) !== null);
    if (open !== undefined)
      log.warn(
        `The redirect URI ${open} uses http on an address that is not loopback. Production rejects it.`,
      );
  };

  return {
    async create(
      {
        isPublic,
        trusted,
        device = false,
        logoUri = '',
        backchannelLogoutUri = '',
        idTokenAlg = 'EdDSA',
        ...input
      },
      from,
    ) {
      validate({ ...input, device, logoUri, backchannelLogoutUri, idTokenAlg });
      const secret = isPublic ? null : newToken(random, 'csec_');
      const client: ClientDocument = {
        id: newId('cid_', clock, random),
        ...input,
        createdAt: clock.now(),
        ...(secret !== null && { secretHash: sha256(secret) }),
        ...(trusted === true && { trusted }),
        ...(device && { device }),
        ...(logoUri !== '' && { logoUri }),
        ...(backchannelLogoutUri !== '' && { backchannelLogoutUri }),
        ...(idTokenAlg === 'ES256' && { idTokenAlg: 'ES256' as const }),
      };
      await Promise.all([
        clients.insert(client),
        audit.record({ event: 'client.created', subject: client.id, ...actorOf(from) }),
      ]);
      return { client, secret };
    },

    async update(clientId, { trusted, device, logoUri, backchannelLogoutUri, idTokenAlg, ...change }, from) {
      const before = isClientId(clientId) ? await clients.findOne({ id: clientId }) : null;
      if (!before) return null;
      const optional = {
        ...(logoUri !== undefined && { logoUri }),
        ...(backchannelLogoutUri !== undefined && { backchannelLogoutUri }),
        ...(idTokenAlg !== before.idTokenAlg && { idTokenAlg }),
      };
      validate({ ...change, ...optional, device: device ?? before.device === true });
      const set = {
        ...change,
        ...(trusted === true && { trusted }),
        ...(device === true && { device }),
        ...(logoUri && { logoUri }),
        ...(backchannelLogoutUri && { backchannelLogoutUri }),
        ...(idTokenAlg === 'ES256' && { idTokenAlg: 'ES256' as const }),
      };
      const unset = [
        ...(trusted === false ? (['trusted'] as const) : []),
        ...(device === false ? (['device'] as const) : []),
        ...(logoUri === '' ? (['logoUri'] as const) : []),
        ...(backchannelLogoutUri === '' ? (['backchannelLogoutUri'] as const) : []),
        ...(idTokenAlg === 'EdDSA' ? (['idTokenAlg'] as const) : []),
      ];
      const updated = await clients.updateOne({ id: clientId }, { set, ...(unset.length > 0 && { unset }) });
      if (updated) {
        const detail = changeDetail(auditedFields(before), auditedFields(updated));
        await audit.record({
          event: 'client.updated',
          subject: clientId,
          ...actorOf(from),
          detail,
        });
      }
      return updated;
    },

    async rotate(clientId, { atOnce }, from) {
      const client = isClientId(clientId) ? await clients.findOne({ id: clientId }) : null;
      const { secretHash: previousSecretHash } = client ?? {};
      if (previousSecretHash === undefined) return null;
      const secret = newToken(random, 'csec_');
      const secretHash = sha256(secret);
      const rotated = await clients.updateOne(
        { id: clientId, secretHash: previousSecretHash },
        atOnce
          ? { set: { secretHash }, unset: ['previousSecretHash', 'previousSecretUntil'] }
          : { set: { secretHash, previousSecretHash, previousSecretUntil: clock.now() + DAY } },
      );
      if (!rotated) return null;
      await audit.record({ event: 'client.rotated', subject: clientId, ...actorOf(from) });
      return secret;
    },

    async delete(clientId, from) {
      const deleted = isClientId(clientId) ? await clients.deleteOne({ id: clientId }) : null;
      if (deleted) await audit.record({ event: 'client.deleted', subject: clientId, ...actorOf(from) });
      return deleted;
    },

    async find(clientId) {
      const client = isClientId(clientId) ? await clients.findOne({ id: clientId }) : null;
      if (client?.previousSecretUntil === undefined || client.previousSecretUntil > clock.now())
        return client;
      const { previousSecretHash, previousSecretUntil, ...current } = client;
      return current;
    },

    estimate: () => clients.estimate(),

    list: (after, limit) =>
      readPage(clients, { sort: 'createdAt', after, ...(limit !== undefined && { limit }) }),
  };
}

/** The fields that `update` changes, as compared by the audit. */
function auditedFields({
  name,
  redirectUris,
  postLogoutRedirectUris,
  principalKinds,
  trusted,
  device,
  logoUri,
  backchannelLogoutUri,
  idTokenAlg,
}: ClientDocument) {
  return {
    name,
    redirectUris: redirectUris.join(' '),
    postLogoutRedirectUris: postLogoutRedirectUris.join(' '),
    principalKinds: principalKinds.join(' '),
    trusted: trusted === true,
    device: device === true,
    logoUri,
    backchannelLogoutUri,
    idTokenAlg: idTokenAlg ?? 'EdDSA',
  };
}

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

const LOGO_RULE =
  'must be an https address without a user name, like https://app.example.com/logo.png, or empty for no logo';

/** Its origin becomes a source in the content security policy of the pages that show the image. */
function isLogoUri(uri: string): boolean {
  if (/[^\x21-\x7e]|[\\#]/.test(uri) || !URL.canParse(uri) || !WEB_ORIGIN.test(uri)) return false;
  const { protocol, username, password } = new URL(uri);
  return protocol === 'https:' && !username && !password;
}

/** The rules of redirect URIs for the web: the provider itself calls it. */
const logoutUriProblem = (uri: string, allowHttp: boolean): string | null =>
  /^https?:/i.test(uri)
    ? redirectUriProblem(uri, allowHttp)
    : 'must be an https address, like https://app.example.com/backchannel-logout, or empty for none';

/** Other text is never looked up, because a store may be unable to represent it. */
const isClientId = (text: string): boolean => /^cid_[\w-]{22,}$/.test(text);

function uriProblems(field: string, uris: string[], allowHttp: boolean): ErrorDetail[] {
  return uris.flatMap((uri, index) => {
    const problem = redirectUriProblem(uri, allowHttp);
    return problem === null ? [] : [{ path: `${field}.${index}`, message: problem }];
  });
}

/** Two slashes, a host and an optional port: browsers and Content Security Policy read it without corrections. */
const WEB_ORIGIN = /^https?:\/\/([\w.-]+|\[[\da-f:.]+\])(:\d+)?([/?]|$)/i;

/**
 * Parameters of an authorization response (RFC 6749 §4.1.2, RFC 9207, OpenID Connect Core and Session Management, JARM).
 * A URI that contains one would give the application two values, and it might use the one that is not the provider's.
 */
const RESPONSE_PARAMETERS = new Set([
  'code',
  'state',
  'iss',
  'error',
  'error_description',
  'error_uri',
  'session_state',
  'id_token',
  'access_token',
  'response',
]);

/**
 * Which redirect URIs a client may register (RFC 9700 §4.1, RFC 8252 §7): https, http to this machine, or the
 * reverse-DNS scheme of a native application. A URI that a browser or parser could read as another address is rejected.
 *
 * @param allowHttp whether http to other hosts is accepted, for development
 * @returns the problem, as the end of a sentence, or `null`
 */
function redirectUriProblem(uri: string, allowHttp: boolean): string | null {
  if (/[^\x21-\x7e]|[*\\#]/.test(uri))
    return 'must not contain spaces, control characters, a wildcard, a backslash or a fragment';
  if (!URL.canParse(uri)) return 'must be an absolute URI, like https://app.example.com/callback';
  const { protocol, hostname, username, password, searchParams } = new URL(uri);
  if (username || password) return 'must not contain a user name or password';
  const reserved = [...searchParams.keys()].find((name) => RESPONSE_PARAMETERS.has(plainName(name)));
  if (reserved !== undefined) {
    return `must not contain the parameter ${plainName(reserved)}, which is reserved for authorization responses`;
  }
  const isWeb = protocol === 'https:' || protocol === 'http:';
  if (isWeb && !WEB_ORIGIN.test(uri)) return 'must contain a host, like https://app.example.com/callback';
  if (protocol === 'https:') return null;
  if (protocol === 'http:') {
    return isLoopback(hostname) || allowHttp
      ? null
      : 'must be https, like https://app.example.com/callback; http is allowed for loopback addresses only';
  }
  return /^[a-z][a-z0-9-]*(\.[a-z0-9-]+)+:$/.test(protocol)
    ? null
    : 'must be https, http on a loopback address, or a scheme like com.example.app:/callback';
}

/** The name as frameworks read it that treat `Code`, `code[]` and `code[0]` as `code`. */
function plainName(name: string): string {
  return name.replace(/\[.*$/s, '').trim().toLowerCase();
}

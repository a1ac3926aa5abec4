import type { Origin } from '../http/scope.js';
import { DAY } from '../kernel/clock.js';
import { invalidFields } from '../kernel/errors.js';
import { newId, newToken, sha256 } from '../kernel/secrets.js';
import { actorOf, changeDetail } from '../ops/audit.js';
import type { JobLog } from '../ops/jobs.js';
import type { Estimate, Page } from '../storage/collection.js';
import { readPage } from '../storage/pages.js';
import {
  isLogoUri,
  LOGO_RULE,
  logoutUriProblem,
  redirectUriProblem,
  type UriRules,
  uriProblems,
} from './client-uris.js';
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
  uriRules: UriRules;
  /** The algorithms for which the provider has a key. */
  idTokenAlgorithms: readonly IdTokenAlgorithm[];
  log: Pick<JobLog, 'warn'>;
}

export function createClients(
  clients: ClientCollection,
  { audit, clock, random, uriRules, idTokenAlgorithms, log }: ClientDependencies,
): Clients {
  const validate = ({
    redirectUris,
    postLogoutRedirectUris = [],
    logoUri = '',
    backchannelLogoutUri = '',
    idTokenAlg = 'EdDSA',
  }: ClientChange): void => {
    const problem = backchannelLogoutUri === '' ? null : logoutUriProblem(backchannelLogoutUri, uriRules);
    if (redirectUris?.length === 0)
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

  return {
    async create(
      { isPublic, trusted, logoUri = '', backchannelLogoutUri = '', idTokenAlg = 'EdDSA', ...input },
      from,
    ) {
      validate({ ...input, logoUri, backchannelLogoutUri, idTokenAlg });
      const secret = isPublic ? null : newToken(random, 'csec_');
      const client: ClientDocument = {
        id: newId('cid_', clock, random),
        ...input,
        createdAt: clock.now(),
        ...(secret !== null && { secretHash: sha256(secret) }),
        ...(trusted === true && { trusted }),
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

    async update(clientId, { trusted, logoUri, backchannelLogoutUri, idTokenAlg, ...change }, from) {
      const before = isClientId(clientId) ? await clients.findOne({ id: clientId }) : null;
      if (!before) return null;
      const optional = {
        ...(logoUri !== undefined && { logoUri }),
        ...(backchannelLogoutUri !== undefined && { backchannelLogoutUri }),
        ...(idTokenAlg !== before.idTokenAlg && { idTokenAlg }),
      };
      validate({ ...change, ...optional });
      const set = {
        ...change,
        ...(trusted === true && { trusted }),
        ...(logoUri && { logoUri }),
        ...(backchannelLogoutUri && { backchannelLogoutUri }),
        ...(idTokenAlg === 'ES256' && { idTokenAlg: 'ES256' as const }),
      };
      const unset = [
        ...(trusted === false ? (['trusted'] as const) : []),
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

/** Other text is never looked up, because a store may be unable to represent it. */
const isClientId = (text: string): boolean => /^cid_[\w-]{22,}$/.test(text);

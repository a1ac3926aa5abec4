import type { Origin } from '../http/scope.js';
import { DAY } from '../kernel/clock.js';
import type { ErrorDetail } from '../kernel/errors.js';
import { newId, newToken, sha256 } from '../kernel/secrets.js';
import type { Page } from '../storage/collection.js';
import { invalid } from './errors.js';
import { pageOf } from './pages.js';
import type { Dependencies } from './principals.js';
import { redirectUriProblem } from './redirect-uris.js';
import type { Kind } from './schemas.js';
import type { ClientCollection, ClientDocument } from './store.js';

export interface ClientInput {
  name: string;
  redirectUris: string[];
  postLogoutRedirectUris: string[];
  isPublic: boolean;
  principalKinds: Kind[];
  /** Nothing that comes over HTTP says so. */
  trusted?: boolean;
}

/** What may change about a client; absent stays as it is. */
export type ClientChange = Partial<Omit<ClientInput, 'isPublic'>>;

export interface Clients {
  /** @throws VALIDATION_ERROR naming every URI that cannot be registered */
  create(input: ClientInput, from: Origin): Promise<{ client: ClientDocument; secret: string | null }>;
  /** `null`: unknown. @throws VALIDATION_ERROR naming every URI that cannot be registered */
  update(clientId: string, change: ClientChange, from: Origin): Promise<ClientDocument | null>;
  /**
   * A new secret; the old one works for another day, unless it must not. `null` when there is no such client, it has
   * no secret, or somebody else is doing the same.
   */
  rotate(clientId: string, options: { atOnce: boolean }, from: Origin): Promise<string | null>;
  delete(clientId: string, from: Origin): Promise<ClientDocument | null>;
  /** With the previous secret only for as long as that is valid. */
  find(clientId: string): Promise<ClientDocument | null>;
  /** @param after the `next` of the page before. @throws VALIDATION_ERROR when it is none */
  list(after?: string): Promise<Page<ClientDocument>>;
}

export interface ClientDependencies extends Dependencies {
  /** Whether redirect URIs may use http beyond this machine. */
  allowHttp: boolean;
  warn(message: string): void;
}

export function createClients(
  clients: ClientCollection,
  { audit, clock, random, allowHttp, warn }: ClientDependencies,
): Clients {
  const judgeUris = ({ redirectUris, postLogoutRedirectUris = [] }: ClientChange): void => {
    if (redirectUris?.length === 0)
      throw invalid({
        path: 'redirect_uris',
        message: 'must contain at least one URI, like https://app.example.com/callback',
      });
    const details = [
      ...uriProblems('redirect_uris', redirectUris ?? [], allowHttp),
      ...uriProblems('post_logout_redirect_uris', postLogoutRedirectUris, allowHttp),
    ];
    if (details.length > 0) throw invalid(...details);
    const open = redirectUris?.find((uri) => redirectUriProblem(uri, false) !== null);
    if (open !== undefined)
      warn(`The redirect URI ${open} uses http on an address that is not loopback. Production rejects it.`);
  };

  return {
    async create({ isPublic, trusted, ...input }, { ip }) {
      judgeUris(input);
      const secret = isPublic ? null : newToken(random, 'csec_');
      const client: ClientDocument = {
        id: newId('cid_', clock, random),
        ...input,
        createdAt: clock.now(),
        ...(secret !== null && { secretHash: sha256(secret) }),
        ...(trusted === true && { trusted }),
      };
      await Promise.all([
        clients.insert(client),
        audit.record({ event: 'client.created', subject: client.id, ip }),
      ]);
      return { client, secret };
    },

    async update(clientId, { trusted, ...change }, { ip }) {
      judgeUris(change);
      if (!isClientId(clientId)) return null;
      const updated = await clients.updateOne(
        { id: clientId },
        {
          set: { ...change, ...(trusted === true && { trusted }) },
          ...(trusted === false && { unset: ['trusted'] }),
        },
      );
      if (updated) await audit.record({ event: 'client.updated', subject: clientId, ip });
      return updated;
    },

    async rotate(clientId, { atOnce }, { ip }) {
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
      await audit.record({ event: 'client.rotated', subject: clientId, ip });
      return secret;
    },

    async delete(clientId, { ip }) {
      const deleted = isClientId(clientId) ? await clients.deleteOne({ id: clientId }) : null;
      if (deleted) await audit.record({ event: 'client.deleted', subject: clientId, ip });
      return deleted;
    },

    async find(clientId) {
      const client = isClientId(clientId) ? await clients.findOne({ id: clientId }) : null;
      if (client?.previousSecretUntil === undefined || client.previousSecretUntil > clock.now())
        return client;
      const { previousSecretHash, previousSecretUntil, ...current } = client;
      return current;
    },

    list: (after) => pageOf(clients, 'createdAt', after),
  };
}

/** What looks like no identifier of ours may be text that no store can hold. */
const isClientId = (text: string): boolean => /^cid_[\w-]{22,}$/.test(text);

function uriProblems(field: string, uris: string[], allowHttp: boolean): ErrorDetail[] {
  return uris.flatMap((uri, index) => {
    const problem = redirectUriProblem(uri, allowHttp);
    return problem === null ? [] : [{ path: `${field}.${index}`, message: problem }];
  });
}

import type { RequestSource } from '../../core/http/routes.js';
import { type Audit, actorOf } from '../../core/ops/audit.js';
import type { CommitParts } from '../../core/ops/commit.js';
import { type DocumentCopy, type Documents, DocumentUnavailable } from '../../core/outbound/documents.js';
import type { Page } from '../../core/storage/collection.js';
import type { EndClient } from '../provisioning/clients.js';
import { type HostPolicy, isAllowedHost } from './hosts.js';
import { type AddressRules, readMetadata, type StatedClient } from './metadata.js';

/**
 * Clients whose identifier is the address of their metadata (draft-ietf-oauth-client-id-metadata-document). The store
 * keeps a copy of the document; the rules are applied whenever it is read, so that a change of the options acts at once.
 */
export interface MetadataClient extends Omit<StatedClient, 'method'> {
  id: string;
  principalKinds: ['human'];
  origin: 'metadata';
  /** Present until the first sign-in to it. */
  unused?: true;
  createdAt: number;
}

/** A client as operators see it. */
export interface ListedClient {
  /** Of the copy. */
  id: string;
  clientId: string;
  name: string;
  firstUsedAt?: number;
  lastUsedAt?: number;
  blockedAt?: number;
}

export interface MetadataClientDependencies {
  documents: Documents;
  hosts: HostPolicy;
  rules: AddressRules;
  /** Why an address is no identifier of a client, as the end of a sentence, or `null`. */
  idProblem(text: string): string | null;
  endClient: EndClient;
  commit: CommitParts;
  audit: Pick<Audit, 'entry'>;
}

const METHODS = { methods: ['none', 'private_key_jwt'], defaultMethod: 'none' } as const;

const UNAVAILABLE = 'The client metadata document cannot be fetched as JSON from the client_id.';
const BLOCKED = 'The operator of this provider has blocked the client.';
const REFUSED = 'This provider does not accept clients from the host of the client_id.';

export function createMetadataClients({
  documents,
  hosts,
  rules,
  idProblem,
  endClient,
  commit,
  audit,
}: MetadataClientDependencies) {
  const read = (clientId: string, text: string): StatedClient | { problem: string } => {
    const stated = parseObject(text);
    if (stated === null) return { problem: 'The client metadata document is not a JSON object.' };
    // A document at another address, or one that anybody can upload to a shared host, names another client.
    if (stated['client_id'] !== clientId)
      return { problem: 'client_id in the client metadata document differs from its address.' };
    if (['client_secret', 'client_secret_expires_at'].some((name) => Object.hasOwn(stated, name)))
      return { problem: 'The client metadata document must not contain a secret.' };
    const { origin } = new URL(clientId);
    const result = readMetadata(stated, METHODS, {
      ...rules,
      // The provider calls it, so it has to belong to the host that published the document.
      logoutUri: (uri) =>
        URL.canParse(uri) && new URL(uri).origin === origin
          ? rules.logoutUri(uri)
          : 'must have the origin of the client_id',
    });
    return 'field' in result
      ? { problem: `${result.field} in the client metadata document ${result.message}.` }
      : result;
  };

  const clientOf = ({ uri: id, text, fetchedAt, usedAt }: DocumentCopy): MetadataClient | null => {
    const stated = read(id, text);
    if ('problem' in stated) return null;
    const { method: _, ...client } = stated;
    return {
      id,
      ...client,
      principalKinds: ['human'],
      origin: 'metadata',
      createdAt: fetchedAt,
      ...(usedAt === undefined && { unused: true }),
    };
  };

  const isClient = (clientId: string) => idProblem(clientId) === null;
  const isAllowed = (clientId: string) => isAllowedHost(new URL(clientId).hostname, hosts);

  return {
    /** The client as it was read last, without a request. */
    async find(clientId: string): Promise<MetadataClient | null> {
      if (!isClient(clientId) || !isAllowed(clientId)) return null;
      const copy = await documents.find(clientId);
      return copy && copy.blockedAt === undefined ? clientOf(copy) : null;
    },

    /**
     * The client after a request, if its copy is not fresh.
     * @throws what `pay` throws
     */
    async resolve(
      clientId: string,
      options: { pay(): Promise<void>; allowsStale: boolean },
    ): Promise<MetadataClient | { problem: string } | null> {
      const problem = idProblem(clientId);
      if (problem !== null) return { problem: `The address of the client metadata document ${problem}.` };
      if (!isAllowed(clientId)) return { problem: REFUSED };
      if ((await documents.find(clientId))?.blockedAt !== undefined) return { problem: BLOCKED };
      try {
        const copy = await documents.read(clientId, {
          ...options,
          problemOf(text) {
            const stated = read(clientId, text);
            return 'problem' in stated ? stated.problem : null;
          },
        });
        return clientOf(copy) ?? (read(clientId, copy.text) as { problem: string });
      } catch (error) {
        if (error instanceof DocumentUnavailable) return { problem: error.problem ?? UNAVAILABLE };
        throw error;
      }
    },

    recordUse: (clientId: string) => documents.markUsed(clientId),

    /** Those that were used: the latest first, or those at addresses with this beginning. */
    async list(query: {
      prefix?: string | undefined;
      after?: string | undefined;
      limit: number;
    }): Promise<Page<ListedClient>> {
      const { items, next } = await documents.listUsed(query);
      return { items: items.map(listedOf), next };
    },

    /** @param id of the copy */
    async findListed(id: string): Promise<ListedClient | null> {
      const copy = await documents.findById(id);
      return copy?.usedAt === undefined ? null : listedOf(copy);
    },

    /** Refuses a client, whose tokens end, or admits it again. `null` if it was so already. */
    async setBlocked(id: string, isBlocked: boolean, source: RequestSource): Promise<ListedClient | null> {
      const copy = await documents.findById(id);
      if (!copy) return null;
      const by = actorOf(source);
      const { write, changed } = documents.settingBlocked(copy, isBlocked);
      const event = isBlocked ? 'client.blocked' : 'client.admitted';
      const { committed } = await commit([
        write,
        isBlocked ? await endClient(copy.uri, by) : undefined,
        audit.entry({ event, subject: copy.uri, ...by }),
      ]);
      return committed ? listedOf(changed) : null;
    },
  };
}

function listedOf({ id, uri, text, usedAt, lastUsedAt, blockedAt }: DocumentCopy): ListedClient {
  const { client_name: name } = parseObject(text) ?? {};
  return {
    id,
    clientId: uri,
    name: typeof name === 'string' ? name : '',
    ...(usedAt !== undefined && { firstUsedAt: usedAt }),
    ...(lastUsedAt !== undefined && { lastUsedAt }),
    ...(blockedAt !== undefined && { blockedAt }),
  };
}

function parseObject(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : null;
  } catch {
    return null;
  }
}

import { sha256 } from '../../core/kernel/secrets.js';
import { actorOf } from '../../core/ops/audit.js';
import { type UsedOnce, usedOnceCollection } from '../../core/ops/single-use.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { Collection, Store } from '../../core/storage/collection.js';

/** The account of the identity provider whose agents act for a user. */
export interface AgentLink {
  /** SHA-256 of issuer and subject, so that one account of the provider belongs to one user. */
  id: string;
  /** SHA-256 of issuer and user, so that a user has one account of each provider. */
  owner: string;
  userId: string;
  issuer: string;
  subject: string;
  createdAt: number;
}

export type AgentLinks = Collection<AgentLink>;

export const agentLinkCollection = (store: Store): AgentLinks =>
  store.collection<AgentLink>('agentLinks', { unique: ['owner'], indexes: [['userId', 'createdAt']] });

export const linkId = (issuer: string, subject: string): string => sha256(JSON.stringify([issuer, subject]));
export const linkOwner = (issuer: string, userId: string): string => sha256(JSON.stringify([issuer, userId]));

/** The DPoP proofs and the tickets of connections that were used, in all processes together. */
export const usedAgentProofCollection = (store: Store): Collection<UsedOnce> =>
  usedOnceCollection(store, 'usedAgentProofs');

/** A change about which the user gets a mail: enqueued before the change, and sent once it has been made. */
export interface AgentLinkChange {
  kind: 'connected' | 'disconnected';
  /** Identifies the mail. */
  key: string;
  versionField: string;
  version: number;
}

export const changeOf = (
  kind: AgentLinkChange['kind'],
  { id, userId, createdAt }: Pick<AgentLink, 'id' | 'userId' | 'createdAt'>,
): AgentLinkChange => ({
  kind,
  key: sha256(`${kind} ${userId} ${id} ${createdAt}`),
  versionField: `agents-${kind} ${id}`,
  version: kind === 'connected' ? createdAt : createdAt + 1,
});

/** The current value of the `versionField` of a change; undefined for any other field. */
export async function readLinkVersion(
  links: Pick<AgentLinks, 'findOne'>,
  userId: string,
  field: string,
): Promise<number | undefined> {
  const [, kind, id] = /^agents-(connected|disconnected) ([\w-]+)$/.exec(field) ?? [];
  if (id === undefined) return undefined;
  const found = await links.findOne({ id, userId });
  return found?.createdAt ?? (kind === 'connected' ? 0 : Number.MAX_SAFE_INTEGER);
}

/** Also without the option: an account that is deleted or has a new owner loses its connections. */
export function contributeAgentLinks({
  store,
  audit,
  signInMethods,
  versions,
}: Pick<ModuleContext, 'store' | 'audit' | 'signInMethods' | 'versions'>): void {
  const links = agentLinkCollection(store);
  versions.add((userId, field) => readLinkVersion(links, userId, field));
  signInMethods.add('agents', {
    forget: (userId) => links.deleteMany({ userId }),
    async remove(userId, source) {
      const removed = await links.deleteMany({ userId });
      if (removed > 0)
        await audit.record({ event: 'agents.disconnected', subject: userId, ...actorOf(source) });
    },
  });
}

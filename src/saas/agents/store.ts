import { sha256 } from '../../core/kernel/secrets.js';
import { actorOf } from '../../core/ops/audit.js';
import { type UsedOnce, usedOnceCollection } from '../../core/ops/single-use.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { Collection, Store } from '../../core/storage/collection.js';
import { allOf } from '../../core/storage/pages.js';

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
  store.collection<AgentLink>('agentLinks', {
    unique: ['owner'],
    indexes: [['userId', 'createdAt']],
    numbers: ['createdAt'],
  });

export const linkId = (issuer: string, subject: string): string => sha256(JSON.stringify([issuer, subject]));
export const linkOwner = (issuer: string, userId: string): string => sha256(JSON.stringify([issuer, userId]));

/** The DPoP proofs and the tickets of connections that were used, in all processes together. */
export const usedAgentProofCollection = (store: Store): Collection<UsedOnce> =>
  usedOnceCollection(store, 'usedAgentProofs');

/** Also without the option: an account that is deleted or has a new owner loses its connections. */
export function contributeAgentLinks({ store, audit, signInMethods }: ModuleContext): void {
  const links = agentLinkCollection(store);
  signInMethods.add('agents', {
    async removal(userId, source) {
      const removed = await allOf(links, { where: { userId }, sort: 'createdAt' });
      const isRecorded = source !== undefined && removed.length > 0;
      return [
        ...removed.map(({ id }) => links.deleting({ id, userId })),
        isRecorded
          ? audit.entry({ event: 'agents.disconnected', subject: userId, ...actorOf(source) })
          : undefined,
      ];
    },
  });
}

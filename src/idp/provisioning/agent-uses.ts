import { type Clock, MINUTE } from '../../core/kernel/clock.js';
import type { BackgroundTasks } from '../../core/ops/background-tasks.js';
import { type Collection, nullIfTaken, type Store, type Write } from '../../core/storage/collection.js';
import { allOf } from '../../core/storage/pages.js';

/** Where agents acted: one document for each agent and API. */
export interface AgentUseDocument {
  id: string;
  /** The `sub` of the agent. */
  agent: string;
  /** The identifier of the API. */
  resource: string;
  /** The grant of the last use that was noted: its receipt names what happened. */
  txn: string;
  firstUsedAt: number;
  lastUsedAt: number;
  /** The number of minutes with a use. */
  minutes: number;
}

export type AgentUse = Pick<AgentUseDocument, 'resource' | 'txn'>;

export type AgentUses = ReturnType<typeof createAgentUses>;

export const agentUseCollection = (store: Store): Collection<AgentUseDocument> =>
  store.collection<AgentUseDocument>('agentUses', { indexes: [['agent']], numbers: ['lastUsedAt'] });

/** How precisely a use is known, and how often one is written. */
const PRECISION_MS = MINUTE;

const MAX_KNOWN = 10_000;

export function createAgentUses(
  uses: Collection<AgentUseDocument>,
  { clock, backgroundTasks }: { clock: Clock; backgroundTasks: Pick<BackgroundTasks, 'run'> },
) {
  /** When this process has noted the last use. */
  const known = new Map<string, number>();

  return {
    /** After a token, or a question of an API about one. A failure leaves the previous time. */
    note(agent: string, { resource, txn }: AgentUse): void {
      const id = `${agent} ${resource}`;
      const now = clock.now();
      if (now - (known.get(id) ?? Number.NEGATIVE_INFINITY) < PRECISION_MS) return;
      if (known.size >= MAX_KNOWN) known.clear();
      known.set(id, now);
      backgroundTasks.run('use of an API by an agent', async () => {
        const change = { set: { lastUsedAt: now, txn }, inc: { minutes: 1 } };
        const first = { id, agent, resource, txn, firstUsedAt: now, lastUsedAt: now, minutes: 1 };
        // Another process may have noted one in the last minute.
        if (await uses.changeOne({ id, lastUsedAt: { lte: now - PRECISION_MS } }, change)) return;
        await uses.insert(first).catch(nullIfTaken);
      });
    },

    /** Of an agent, by API. */
    of: (agent: string): Promise<AgentUseDocument[]> => allOf(uses, { where: { agent }, sort: 'id' }),

    /** What removes those of an agent, for the commit that deletes it. */
    async leaving(agent: string): Promise<Write[]> {
      const found = await allOf(uses, { where: { agent }, sort: 'id' });
      return found.map(({ id }) => uses.deleting({ id }));
    },
  };
}

/** Reads that see every acknowledged write, also after an election. */
import type { EventEmitter } from 'node:events';
import type { mongodb } from '@fastify/mongodb';

/**
 * A new primary has every acknowledged write, but a majority read does not see those of which it does not know yet that
 * the majority has them: for seconds after the election. Reads therefore wait until a write of this process was confirmed
 * by the majority there, and a read during which the primary has changed is repeated, because the driver may have repeated
 * it at the new one. Behind a router of a sharded cluster, elections are not visible.
 */
export class CurrentReads {
  readonly #confirm: () => Promise<unknown>;
  /** The address and the election of the primary. */
  #primary: string | undefined;
  #elections = 0;
  #confirmed = 0;
  #confirming: Promise<void> | undefined;
  /** Ends the observation of elections. */
  readonly stop: () => void;

  /** @param confirm a write that the majority acknowledges; it need not change anything */
  constructor(client: Pick<EventEmitter, 'on' | 'off'>, confirm: () => Promise<unknown>) {
    this.#confirm = confirm;
    const observe = (change: mongodb.TopologyDescriptionChangedEvent) => {
      // The first one is known by the first change: opening the store has written there.
      this.#primary ??= primaryOf(change.previousDescription);
      const primary = primaryOf(change.newDescription);
      if (primary === undefined) return;
      if (primary !== this.#primary) this.#elections++;
      this.#primary = primary;
    };
    client.on('topologyDescriptionChanged', observe);
    // A host's client lives on.
    this.stop = () => void client.off('topologyDescriptionChanged', observe);
  }

  async read<R>(step: () => Promise<R>): Promise<R> {
    for (;;) {
      while (this.#confirmed !== this.#elections) await this.#confirmOnce();
      const elections = this.#elections;
      const result = await step();
      if (elections === this.#elections) return result;
    }
  }

  /** One confirmation for all reads that wait. After a failure, the next read tries again. */
  #confirmOnce(): Promise<void> {
    const elections = this.#elections;
    this.#confirming ??= this.#confirm()
      .then(() => {
        // The primary may have changed meanwhile.
        if (elections === this.#elections) this.#confirmed = elections;
      })
      .finally(() => {
        this.#confirming = undefined;
      });
    return this.#confirming;
  }
}

/** Identifies a primary and its election. */
function primaryOf({ servers }: mongodb.TopologyDescription): string | undefined {
  const primary = [...servers.values()].find(({ type }) => type === 'RSPrimary');
  return primary && `${primary.address} ${primary.electionId}`;
}

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

  /** @param confirm a write that the majority acknowledges; it need not change anything */
  constructor(client: Pick<EventEmitter, 'on'>, confirm: () => Promise<unknown>) {
    this.#confirm = confirm;
    client.on('topologyDescriptionChanged', ({ newDescription }: mongodb.TopologyDescriptionChangedEvent) => {
      const primary = [...newDescription.servers.values()].find(({ type }) => type === 'RSPrimary');
      if (!primary) return;
      const name = `${primary.address} ${primary.electionId}`;
      if (name !== this.#primary) this.#elections++;
      this.#primary = name;
    });
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

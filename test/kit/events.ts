import type { Effect } from '../../src/core/ops/commit.js';

type EmitAny = (name: never, payload: never) => unknown;

/** Events that are passed to `emit` after their commit, for modules without an outbox. */
export const committing =
  (emit: EmitAny = () => undefined) =>
  async (name: string, payload: object): Promise<Effect> => ({
    writes: [],
    afterCommit: () => void emit(name as never, payload as never),
  });

/** The same as the dependency of a module. */
export const eventSink = (emit?: EmitAny) => ({ event: committing(emit) });

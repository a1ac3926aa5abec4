import type { Effect } from '../../src/core/ops/commit.js';
import type { AnnouncedEvent } from '../../src/core/ops/events.js';

type EmitAny = (name: never, payload: never) => unknown;

/** Announcements whose events are passed to `emit` once their change is made, for modules without an outbox. */
export const announcing =
  (emit: EmitAny = () => undefined) =>
  async (name: string, payload: object): Promise<AnnouncedEvent> => ({
    emit: async () => void emit(name as never, payload as never),
    withdraw: async () => undefined,
  });

/** The same for events that are emitted without an announcement. */
export const emitting =
  (emit: EmitAny = () => undefined) =>
  async (name: string, payload: object): Promise<void> =>
    void emit(name as never, payload as never);

/** The same for events that are part of a commit. */
export const committing =
  (emit: EmitAny = () => undefined) =>
  async (name: string, payload: object): Promise<Effect> => ({
    writes: [],
    afterCommit: () => void emit(name as never, payload as never),
  });

/** The functions of a module, which call `emit`. */
export const eventSink = (emit?: EmitAny) => ({
  emit: emitting(emit),
  event: committing(emit),
  announceEvent: announcing(emit),
});

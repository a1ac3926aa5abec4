import { EventEmitter } from 'node:events';
import { toTimestamp } from '../http/schemas.js';
import type { Clock } from '../kernel/clock.js';
import { newId, type Random } from '../kernel/secrets.js';
import { suggestion } from '../kernel/text.js';
import type { Write } from '../storage/collection.js';
import type { Effect } from './commit.js';
import type { JobLog } from './jobs.js';

/**
 * Events for integrators: each is emitted once, after its commit, in the process that committed it. Delivery to listeners is
 * not guaranteed: a process that crashes between commit and listener emits nothing. An outbox, if there is one, gets the same events and
 * keeps them.
 */

/** Properties of every event beside its payload. */
export interface EventMetadata {
  /** Unique. */
  id: string;
  /** ISO 8601, UTC. */
  at: string;
}

/**
 * Resolves when the outbox has the event. Never rejects, because the change was made. An event that several requests may emit has an `id` of its own.
 */
export type Emit<Events> = <Name extends keyof Events & string>(
  name: Name,
  payload: Events[Name] & { id?: string },
) => Promise<void>;

/**
 * An event of a change, for the commit of that change: webhooks get it with the change or not at all, listeners after it. An event that several
 * commits may contain has an `id` of its own, and is delivered once.
 */
export type EventOf<Events> = <Name extends keyof Events & string>(
  name: Name,
  payload: Events[Name] & { id?: string },
) => Promise<Effect>;

/** An event of a change that is about to be made. */
export interface AnnouncedEvent {
  /** After the change. */
  emit(): Promise<void>;
  /** If the change was not made. */
  withdraw(): Promise<void>;
}

/**
 * Announces an event before its change, so that a crash after the change does not lose it. Without `emit` and `withdraw`, the outbox finds out by
 * the proof whether the change was made.
 */
export type Announce<Events> = <Name extends keyof Events & string>(
  name: Name,
  payload: Events[Name] & { id?: string },
  proof: EventProof,
) => Promise<AnnouncedEvent>;

/** How to tell after a crash whether a change was made. */
export interface EventProof {
  /** The kind of the document that it changes. */
  of: string;
  id: string;
  /** Fields after the change; `null`: it has no such field. Absent: the document is deleted. */
  has?: Readonly<Record<string, string | number | boolean | null>>;
  /** Fields that only grow. */
  reaches?: Readonly<Record<string, number>>;
  /** Whether the document may also be deleted by now, because its deletion follows the change. */
  orDeleted?: true;
}

/** Whether a document is as a proof demands. */
export function provesChange(document: object | null, { has, reaches = {}, orDeleted }: EventProof): boolean {
  if (has === undefined) return document === null;
  if (document === null) return orDeleted === true;
  const fields = document as Record<string, unknown>;
  return (
    Object.entries(has).every(([name, value]) => (fields[name] ?? null) === value) &&
    Object.entries(reaches).every(([name, least]) => Number(fields[name] ?? 0) >= least)
  );
}

/** An event with its payload. */
export type StoredEvent = EventMetadata & Readonly<Record<string, unknown>>;

/** Keeps events for other programs. */
export interface EventOutbox {
  /** Stores an event; a repeated call with the same event has no effect. */
  put(name: string, event: StoredEvent): Promise<void>;
  /** The writes that store an event, for the commit of its change. */
  writesOf(name: string, event: StoredEvent): Promise<readonly Write[]>;
  /** Called once they are stored. */
  wake(): void;
  /** Stores an event before its change; false if nothing has to be kept. */
  announce(name: string, event: StoredEvent, proof: EventProof): Promise<boolean>;
  /** Removes an announced event. */
  withdraw(name: string, id: string): Promise<void>;
}

/** Called with each event, without waiting for what it returns. */
type Listener<Payload> = (event: Readonly<EventMetadata & Payload>) => unknown;

/** Listeners of events by name. */
export interface Listeners<Events> {
  /** Calls the listener with every event. */
  on<Name extends keyof Events & string>(name: Name, listener: Listener<Events[Name]>): void;
  /** Calls the listener with the next event only. */
  once<Name extends keyof Events & string>(name: Name, listener: Listener<Events[Name]>): void;
  /** Removes a listener. */
  off<Name extends keyof Events & string>(name: Name, listener: Listener<Events[Name]>): void;
}

/**
 * A crash must not lose an event that webhooks send, so its change decides which function is called:
 * - `announce` before a change that nothing repeats, and `emit` of its result afterwards
 * - `record` before the step that prevents the repetition of a change, and `emit` with the same `id` after it
 * - `emit` alone after a change whose repetition emits the event again, with the same `id`
 */
export interface Emitter<Events> {
  emit: Emit<Events>;
  event: EventOf<Events>;
  announce: Announce<Events>;
  /**
   * Gives an event with an ID of its own to the outbox only, before the step that prevents its repetition. @throws StoreUnavailable
   */
  record: Emit<Events>;
  events: Readonly<Listeners<Events>>;
}

/**
 * Listeners run asynchronously, and their errors are logged. The methods of `events` throw a TypeError for a name that is
 * not in `names`.
 */
export function createEvents<Events>({
  names,
  outbox,
  clock,
  random,
  log,
}: {
  names: Record<keyof Events & string, true>;
  outbox?: EventOutbox | undefined;
  clock: Clock;
  random: Random;
  log: Pick<JobLog, 'error'>;
}): Emitter<Events> {
  const check = createNameCheck(Object.keys(names));
  const emitter = new EventEmitter().setMaxListeners(0);

  const create = (payload: object & { id?: string }): StoredEvent =>
    Object.freeze({
      ...(payload.id === undefined && { id: newId('evt_', clock, random) }),
      at: toTimestamp(clock.now()),
      ...payload,
    }) as StoredEvent;

  const publish = (name: string, event: StoredEvent): void => {
    for (const listener of emitter.rawListeners(name)) {
      Promise.resolve(event)
        .then(listener as (event: unknown) => unknown)
        .catch((err: unknown) => log.error({ err, event: name }, 'an event listener failed'));
    }
  };

  /** Returns whether the outbox has the event. */
  const keep = async (name: string, event: StoredEvent): Promise<boolean> => {
    try {
      await outbox?.put(name, event);
      return true;
    } catch (err) {
      log.error({ err, event: name, id: event.id }, 'an event could not be stored for its webhooks');
      return false;
    }
  };

  const emit: Emit<Events> = async (name, payload) => {
    if (outbox === undefined && emitter.listenerCount(name) === 0) return;
    const event = create(payload);
    publish(name, event);
    await keep(name, event);
  };

  return {
    emit,

    async event(name, payload) {
      const event = create(payload);
      const writes = (await outbox?.writesOf(name, event)) ?? [];
      return {
        writes,
        afterCommit() {
          publish(name, event);
          if (writes.length > 0) outbox?.wake();
        },
      };
    },

    async announce(name, payload, proof) {
      if (!outbox) return { emit: () => emit(name, payload), withdraw: async () => undefined };
      const event = create(payload);
      const isKept = await outbox.announce(name, event, proof);
      const withdraw = async () => {
        if (!isKept) return;
        // What remains is dropped later, because its change was not made.
        await outbox.withdraw(name, event.id).catch(() => undefined);
      };
      return {
        async emit() {
          publish(name, event);
          if (await keep(name, event)) await withdraw();
        },
        withdraw,
      };
    },

    async record(name, payload) {
      await outbox?.put(name, create(payload));
    },

    events: Object.freeze<Listeners<Events>>({
      on(name, listener) {
        check(name);
        emitter.on(name, listener);
      },
      once(name, listener) {
        check(name);
        emitter.once(name, listener);
      },
      off(name, listener) {
        check(name);
        emitter.off(name, listener);
      },
    }),
  };
}

/** Maximum edit distance of a suggested name. */
const MAX_DISTANCE = 5;

/** Rejects unknown event names, because their listeners would never run. */
function createNameCheck(names: readonly string[]): (name: string) => void {
  const known = new Set(names);
  return (name) => {
    if (known.has(name)) return;
    const meant = suggestion(String(name), names, '', MAX_DISTANCE);
    throw new TypeError(`There is no event '${String(name)}'.${meant} The events are: ${names.join(', ')}.`);
  };
}

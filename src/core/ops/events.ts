import { EventEmitter } from 'node:events';
import { toTimestamp } from '../http/schemas.js';
import type { Clock } from '../kernel/clock.js';
import { newId, type Random } from '../kernel/secrets.js';
import { suggestion } from '../kernel/text.js';
import type { Write } from '../storage/collection.js';
import type { Effect } from './commit.js';
import type { JobLog } from './jobs.js';

/**
 * Events for integrators. An event is stored for its webhooks in the commit of its change. Listeners are called after the commit, in the
 * process that made it: a process that crashes in between calls none.
 */

/** Properties of every event beside its payload. */
export interface EventMetadata {
  /** Unique. */
  id: string;
  /** ISO 8601, UTC. */
  at: string;
}

/** An event of a change, for the commit of that change. One that several commits may contain has an `id` of its own, and is delivered once. */
export type EventOf<Events> = <Name extends keyof Events & string>(
  name: Name,
  payload: Events[Name] & { id?: string },
) => Promise<Effect>;

/** An event with its payload. */
export type StoredEvent = EventMetadata & Readonly<Record<string, unknown>>;

/** Keeps events for other programs. */
export interface EventOutbox {
  /** The writes that store an event. */
  writesOf(name: string, event: StoredEvent): Promise<readonly Write[]>;
  /** Called once they are stored. */
  wake(): void;
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
}) {
  const check = createNameCheck(Object.keys(names));
  const emitter = new EventEmitter().setMaxListeners(0);

  const publish = (name: string, event: StoredEvent): void => {
    for (const listener of emitter.rawListeners(name)) {
      Promise.resolve(event)
        .then(listener as (event: unknown) => unknown)
        .catch((err: unknown) => log.error({ err, event: name }, 'an event listener failed'));
    }
  };

  const event: EventOf<Events> = async (name, payload) => {
    const created: StoredEvent = Object.freeze({
      id: newId('evt_', clock, random),
      at: toTimestamp(clock.now()),
      ...payload,
    });
    const writes = (await outbox?.writesOf(name, created)) ?? [];
    return {
      writes,
      afterCommit() {
        publish(name, created);
        if (writes.length > 0) outbox?.wake();
      },
    };
  };

  return {
    event,

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

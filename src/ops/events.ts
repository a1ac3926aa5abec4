import { EventEmitter } from 'node:events';
import { toTimestamp } from '../http/schemas.js';
import type { Clock } from '../kernel/clock.js';
import { newId, type Random } from '../kernel/secrets.js';
import { suggestion } from '../kernel/text.js';
import type { JobLog } from './jobs.js';

/**
 * Events for integrators: each is emitted once, after its commit, in the process that committed it. Delivery is not
 * guaranteed: a process that crashes between commit and listener emits nothing.
 */

/** Properties of every event beside its payload. */
export interface EventMetadata {
  /** Unique. */
  id: string;
  /** ISO 8601, UTC. */
  at: string;
}

export type Emit<Events> = <Name extends keyof Events & string>(name: Name, payload: Events[Name]) => void;

/** Called with each event, without waiting for what it returns. */
type Listener<Payload> = (event: Readonly<EventMetadata & Payload>) => unknown;

/** Listeners of events by name. */
export interface Subscription<Events> {
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
  clock,
  random,
  log,
}: {
  names: Record<keyof Events & string, true>;
  clock: Clock;
  random: Random;
  log: Pick<JobLog, 'error'>;
}): { emit: Emit<Events>; events: Readonly<Subscription<Events>> } {
  const check = createNameCheck(Object.keys(names));
  const emitter = new EventEmitter().setMaxListeners(0);
  return {
    emit(name, payload) {
      const listeners = emitter.rawListeners(name);
      if (listeners.length === 0) return;
      const event = Object.freeze({
        id: newId('evt_', clock, random),
        at: toTimestamp(clock.now()),
        ...payload,
      });
      for (const listener of listeners) {
        Promise.resolve(event)
          .then(listener as (event: unknown) => unknown)
          .catch((err: unknown) => log.error({ err, event: name }, 'an event listener failed'));
      }
    },
    events: Object.freeze<Subscription<Events>>({
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

import { hash } from 'node:crypto';
import {
  type Collection,
  type Declaration,
  type Store,
  UniqueViolation,
} from '../../src/storage/collection.js';
import { applyChange, compare, matches } from '../../src/storage/semantics.js';

/**
 * Explores every interleaving of the actors' storage calls and, optionally, a crash of one actor before any of
 * its calls. Between two calls an actor may wait only for the store, and may depend only on its answers:
 * two interleavings with the same stored data and the same answers continue in the same way, so only one of them
 * is explored.
 */

export interface Scenario {
  /** Fills the store. Its calls are not scheduled. */
  setup(store: Store): Promise<void>;
  /** Run concurrently, each with its own view of the store. */
  actors: ((store: Store) => Promise<unknown>)[];
  /** Whether one actor may crash before any of its calls. */
  crash?: boolean;
  /** Repairs the effects of a crash, after all actors are done. */
  recover?(store: Store): Promise<void>;
  /** Throws if an interleaving has a wrong result. A crashed actor has no result. */
  check(store: Store, results: (PromiseSettledResult<unknown> | undefined)[]): Promise<void>;
}

export interface Exploration {
  /** Completed interleavings. */
  orders: number;
  /** The first failure: its calls, and the reason. */
  failure?: { calls: string[]; reason: string };
}

type Documents = Map<string, Map<string, { id: string }>>;

interface Pending {
  actor: number;
  name: string;
  perform(): unknown;
  resolve(result: unknown): void;
  reject(error: unknown): void;
}

interface Step {
  label: string;
  take(): void;
}

export async function explore(scenario: Scenario): Promise<Exploration> {
  const known = new Set<string>();
  const waiting: number[][] = [[]];
  let orders = 0;
  for (let prefix = waiting.pop(); prefix; prefix = waiting.pop()) {
    const run = await begin(scenario);
    const calls: string[] = [];
    const taken: number[] = [];
    for (;;) {
      const steps = run.steps();
      if (taken.length >= prefix.length && steps.length > 0) {
        const state = run.state();
        if (known.has(state)) break;
        known.add(state);
        for (let other = steps.length - 1; other > 0; other--) waiting.push([...taken, other]);
      }
      const choice = prefix[taken.length] ?? 0;
      const step = steps[choice];
      if (!step && choice > 0) throw new Error(`Somebody waited for something else: ${calls.join(', ')}`);
      if (!step) {
        orders++;
        const reason = await run.end();
        if (reason !== undefined) return { orders, failure: { calls, reason } };
        break;
      }
      taken.push(choice);
      calls.push(step.label);
      step.take();
      // Runs everything that follows from the answer until the next call of the store.
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
  return { orders };
}

async function begin(scenario: Scenario) {
  const documents: Documents = new Map();
  const direct = memoryStore(documents, async (_name, perform) => perform());
  await scenario.setup(direct);

  const pending: Pending[] = [];
  const seen: string[][] = scenario.actors.map(() => []);
  const results: (PromiseSettledResult<unknown> | undefined)[] = scenario.actors.map(() => undefined);
  let gone: number | undefined;
  for (const [actor, act] of scenario.actors.entries()) {
    const view = memoryStore(
      documents,
      (name, perform) =>
        new Promise((resolve, reject) => {
          if (actor !== gone) pending.push({ actor, name, perform, resolve, reject });
        }),
    );
    act(view).then(
      (value) => {
        results[actor] = { status: 'fulfilled', value };
      },
      (reason: unknown) => {
        results[actor] = { status: 'rejected', reason };
      },
    );
  }
  await new Promise((resolve) => setImmediate(resolve));

  const answer = (call: Pending): void => {
    pending.splice(pending.indexOf(call), 1);
    const note = (outcome: unknown) => seen[call.actor]?.push(`${call.name} ${JSON.stringify(outcome)}`);
    try {
      const result = call.perform();
      note(result);
      call.resolve(result);
    } catch (error) {
      note(String(error));
      call.reject(error);
    }
  };

  return {
    steps(): Step[] {
      const calls = pending.map((call) => ({
        label: `${call.actor}: ${call.name}`,
        take: () => answer(call),
      }));
      const actors = scenario.crash && gone === undefined ? new Set(pending.map(({ actor }) => actor)) : [];
      const crashes = [...actors].map((actor) => ({
        label: `${actor}: gone`,
        take() {
          gone = actor;
          for (const call of pending.filter((one) => one.actor === actor))
            pending.splice(pending.indexOf(call), 1);
        },
      }));
      return [...calls, ...crashes];
    },

    state(): string {
      const stored = [...documents].map(([name, docs]) => [name, [...docs.values()]]);
      return hash('sha1', JSON.stringify([stored, seen, gone]));
    },

    async end(): Promise<string | undefined> {
      try {
        await scenario.recover?.(direct);
        await scenario.check(direct, results);
        return undefined;
      } catch (error) {
        return (error as Error).message;
      }
    },
  };
}

/** The storage interface over plain maps; `call` decides when a step is done. */
function memoryStore(
  documents: Documents,
  call: (name: string, perform: () => unknown) => Promise<unknown>,
): Store {
  return {
    collection: <T extends { id: string }>(name: string, { unique = [] }: Declaration<T> = {}) => {
      if (!documents.has(name)) documents.set(name, new Map());
      const docs = documents.get(name) as unknown as Map<string, T>;
      /** Stored documents; reads return copies. */
      const all = () => [...docs.values()];
      const put = (doc: T): void => {
        for (const field of unique) {
          const duplicate = all().find((other) => other.id !== doc.id && other[field] === doc[field]);
          if (duplicate) throw new UniqueViolation(name, field);
        }
        docs.set(doc.id, structuredClone(doc));
      };
      const steps: Record<keyof Collection<T>, (...args: never[]) => unknown> = {
        insert(doc: T) {
          if (docs.has(doc.id)) throw new UniqueViolation(name, 'id');
          put(doc);
        },
        findOne: (where: never) => structuredClone(all().find((doc) => matches(doc, where)) ?? null),
        updateOne(where: never, change: never) {
          const found = all().find((doc) => matches(doc, where));
          if (!found) return null;
          const after = applyChange(found, change);
          put(after);
          return structuredClone(after);
        },
        deleteOne(where: never) {
          const found = all().find((doc) => matches(doc, where)) ?? null;
          if (found) docs.delete(found.id);
          return found;
        },
        updateMany(where: never, change: never) {
          const found = all().filter((doc) => matches(doc, where));
          for (const doc of found) put(applyChange(doc, change));
          return found.length;
        },
        deleteMany(where: never) {
          const found = all().filter((doc) => matches(doc, where));
          for (const { id } of found) docs.delete(id);
          return found.length;
        },
        page({ where = {}, sort, limit }: { where?: object; sort: string; limit: number }) {
          const found = all().filter((doc) => matches(doc, where as never));
          found.sort((a, b) => compare((a as never)[sort], (b as never)[sort]));
          return { items: structuredClone(found.slice(0, limit)), next: null };
        },
        count: (where: never = {} as never) => all().filter((doc) => matches(doc, where)).length,
      };
      const scheduled = Object.entries(steps).map(([verb, step]) => [
        verb,
        (...args: never[]) => call(`${name}.${verb}`, () => step(...args)),
      ]);
      return Object.fromEntries(scheduled) as Collection<T>;
    },
    ready: async () => undefined,
    close: async () => undefined,
  };
}

import { hash } from 'node:crypto';
import {
  type Change,
  type Collection,
  type Commit,
  type Declaration,
  type Store,
  StoreUnavailable,
  UniqueViolation,
  type Where,
  type Write,
} from '../../src/core/storage/collection.js';
import { applyChange, compare, matches } from '../../src/core/storage/semantics.js';

/**
 * Explores every interleaving of the actors' storage calls and, optionally, a crash of one actor before any of
 * its calls. Between two calls an actor may wait only for the store, and may depend only on its answers:
 * two interleavings with the same stored data and the same answers continue in the same way, so only one of them
 * is explored.
 */

export interface Scenario {
  /** Fills the store, once for all interleavings, which begin with copies of it. Its calls are not scheduled. */
  setup(store: Store): Promise<void>;
  /** Resets what the actors share besides the store, before each interleaving. */
  begin?(): void;
  /** Run concurrently, each with its own view of the store. */
  actors: ((store: Store) => Promise<unknown>)[];
  /** Whether one actor may crash before any of its calls. */
  crash?: boolean;
  /** How many writes may fail with an unknown outcome: each with and without its effect. */
  losses?: number;
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

/** The documents of a collection. */
type Collected = Map<string, { id: string }>;

type Documents = Map<string, Collected>;

/** Returns a function that undoes all later changes. */
function remember(docs: readonly Collected[]): () => void {
  const before = docs.map((some) => [...some]);
  return () => {
    for (const [place, some] of docs.entries()) {
      some.clear();
      for (const [id, doc] of before[place] ?? []) some.set(id, doc);
    }
  };
}

interface Pending {
  actor: number;
  name: string;
  /** The documents of the collections that the call may change. */
  docs: readonly Collected[];
  perform(): unknown;
  resolve(result: unknown): void;
  reject(error: unknown): void;
}

interface Step {
  label: string;
  /** The state in which the step would leave the run, which stays as it is. */
  peek(): string;
  take(): void;
}

/** A step to take after others, each given as its place among the steps of its moment. */
interface Branch {
  path: number[];
  /** The state after the last step. */
  state: string;
}

/** Calls whose loss is explored. Those of the collection `time` only represent the passing of time. */
const WRITES = /^(?!time\.).*\.(insert|updateOne|changeOne|deleteOne|commit)$/;

export async function explore(scenario: Scenario): Promise<Exploration> {
  const initial: Documents = new Map();
  await scenario.setup(directStore(initial));

  const known = new Set<string>();
  const waiting: Branch[] = [];
  let orders = 0;
  for (let branch: Branch | undefined = { path: [], state: '' }; branch; branch = waiting.pop()) {
    if (known.has(branch.state)) continue;
    const run = await begin(scenario, initial);
    const calls: string[] = [];
    const taken: number[] = [];
    let { state } = branch;
    for (;;) {
      const steps = run.steps();
      let choice = branch.path[taken.length];
      if (choice === undefined && steps.length > 0) {
        known.add(state);
        // Goes on with a step to a new state, since going back to one repeats all steps that lead to it.
        const [next, ...others] = steps.flatMap((step, place) => {
          const after = step.peek();
          return known.has(after) ? [] : [{ path: [...taken, place], state: after }];
        });
        if (!next) break;
        waiting.push(...others.reverse());
        choice = next.path.at(-1) as number;
        state = next.state;
      }
      if (choice === undefined) {
        orders++;
        const reason = await run.end();
        if (reason !== undefined) return { orders, failure: { calls, reason } };
        break;
      }
      const step = steps[choice];
      if (!step) throw new Error(`An actor waited for something else: ${calls.join(', ')}`);
      taken.push(choice);
      calls.push(step.label);
      step.take();
      // Runs everything that follows from the answer until the next call of the store.
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
  return { orders };
}

async function begin(scenario: Scenario, initial: Documents) {
  const documents: Documents = new Map([...initial].map(([name, docs]) => [name, new Map(docs)]));
  const pending: Pending[] = [];
  /** A digest of all answers to each actor, in their order. */
  const seen = scenario.actors.map(() => '');
  const results: (PromiseSettledResult<unknown> | undefined)[] = scenario.actors.map(() => undefined);
  let gone: number | undefined;
  let losses = 0;
  let isOver = false;
  scenario.begin?.();
  for (const [actor, act] of scenario.actors.entries()) {
    const view = memoryStore(
      documents,
      (name, docs, perform) =>
        new Promise((resolve, reject) => {
          // Timers of an actor that the check runs.
          if (isOver) resolve(perform());
          else if (actor !== gone) pending.push({ actor, name, docs, perform, resolve, reject });
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

  const stateOf = (crashed: number | undefined): string => {
    const stored = [...documents].map(([name, docs]) => [name, [...docs.values()]]);
    return hash('sha1', JSON.stringify([stored, seen, crashed, losses]));
  };

  /** Performs a call and notes the answer as seen by its actor. Returns what hands over the answer. */
  const perform = (call: Pending): (() => void) => {
    const note = (outcome: unknown) => {
      seen[call.actor] = hash('sha1', `${seen[call.actor]} ${call.name} ${JSON.stringify(outcome)}`);
    };
    try {
      const result = call.perform();
      note(result);
      return () => call.resolve(result);
    } catch (error) {
      note(String(error));
      return () => call.reject(error);
    }
  };

  /** The state after a call, which is undone. */
  const stateAfter = (call: Pending, act: () => void): string => {
    const undo = remember(call.docs);
    const [seenBefore, lossesBefore] = [seen[call.actor] as string, losses];
    act();
    const state = stateOf(gone);
    seen[call.actor] = seenBefore;
    losses = lossesBefore;
    undo();
    return state;
  };

  const callStep = (call: Pending): Step => ({
    label: `${call.actor}: ${call.name}`,
    peek: () => stateAfter(call, () => perform(call)),
    take() {
      pending.splice(pending.indexOf(call), 1);
      perform(call)();
    },
  });

  const crashStep = (actor: number): Step => ({
    label: `${actor}: gone`,
    peek: () => stateOf(actor),
    take() {
      gone = actor;
      for (const call of pending.filter((one) => one.actor === actor))
        pending.splice(pending.indexOf(call), 1);
    },
  });

  const lossStep = (call: Pending, takesEffect: boolean): Step => {
    const note = () => {
      losses++;
      seen[call.actor] = hash('sha1', `${seen[call.actor]} ${call.name} lost`);
      try {
        if (takesEffect) call.perform();
      } catch {
        // A rejection is lost as well.
      }
    };
    return {
      label: `${call.actor}: ${call.name} ${takesEffect ? 'unanswered' : 'lost'}`,
      peek: () => stateAfter(call, note),
      take() {
        pending.splice(pending.indexOf(call), 1);
        note();
        call.reject(new StoreUnavailable('no response', { mayHaveTakenEffect: true }));
      },
    };
  };

  return {
    steps(): Step[] {
      const actors = scenario.crash && gone === undefined ? new Set(pending.map(({ actor }) => actor)) : [];
      const writes = losses < (scenario.losses ?? 0) ? pending.filter(({ name }) => WRITES.test(name)) : [];
      const lost = writes.flatMap((call) => [lossStep(call, true), lossStep(call, false)]);
      return [...pending.map(callStep), ...[...actors].map(crashStep), ...lost];
    },

    async end(): Promise<string | undefined> {
      isOver = true;
      const direct = directStore(documents);
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

interface MemoryWrite extends Write {
  docs: Collected;
  make(): boolean;
}

/** A store whose calls are done at once. */
const directStore = (documents: Documents) =>
  memoryStore(documents, async (_name, _docs, perform) => perform());

/** The storage interface over plain maps; `call` decides when a step is done. */
function memoryStore(
  documents: Documents,
  call: (name: string, docs: readonly Collected[], perform: () => unknown) => Promise<unknown>,
): Store {
  const commit = (writes: readonly MemoryWrite[]): Commit => {
    const undo = remember(writes.map(({ docs }) => docs));
    try {
      const unmet = writes.find(({ make }) => !make());
      if (!unmet) return { committed: true };
      undo();
      return { committed: false, unmet };
    } catch (error) {
      undo();
      throw error;
    }
  };
  return {
    collection: <T extends { id: string }>(name: string, { unique = [], text = [] }: Declaration<T> = {}) => {
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
      const insert = (doc: T): void => {
        if (docs.has(doc.id)) throw new UniqueViolation(name, 'id');
        put(doc);
      };
      const changeFirst = (where: never, change: never): T | null => {
        const found = all().find((doc) => matches(doc, where));
        if (!found) return null;
        const after = applyChange(found, change);
        put(after);
        return after;
      };
      const deleteFirst = (where: never): T | null => {
        const found = all().find((doc) => matches(doc, where)) ?? null;
        if (found) docs.delete(found.id);
        return found;
      };
      const steps: Record<
        Exclude<keyof Collection<T>, 'inserting' | 'ensuring' | 'changing' | 'deleting'>,
        (...args: never[]) => unknown
      > = {
        insert,
        insertMany(many: readonly T[]) {
          try {
            many.forEach(insert);
            return true;
          } catch {
            return false;
          }
        },
        findOne: (where: never) => structuredClone(all().find((doc) => matches(doc, where)) ?? null),
        updateOne: (where: never, change: never) => structuredClone(changeFirst(where, change)),
        changeOne: (where: never, change: never) => changeFirst(where, change) !== null,
        deleteOne: (where: never) => structuredClone(deleteFirst(where)),
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
        search(part: string, limit: number) {
          const isFound = (doc: T) =>
            text.some((field) =>
              String(doc[field] ?? '')
                .toLowerCase()
                .includes(part.toLowerCase()),
            );
          return structuredClone(all().filter(isFound).slice(0, limit));
        },
        page({ where = {}, sort, limit }: { where?: object; sort: string; limit: number }) {
          const found = all().filter((doc) => matches(doc, where as never));
          found.sort((a, b) => compare((a as never)[sort], (b as never)[sort]));
          return { items: structuredClone(found.slice(0, limit)), next: null };
        },
        count: (where: never = {} as never) => all().filter((doc) => matches(doc, where)).length,
        estimate: () => ({ count: docs.size, isExact: true }),
      };
      const scheduled = Object.entries(steps).map(([verb, step]) => [
        verb,
        (...args: never[]) => call(`${name}.${verb}`, [docs], () => step(...args)),
      ]);
      const writing = (make: () => boolean): MemoryWrite => ({ collection: name, docs, make });
      return {
        ...(Object.fromEntries(scheduled) as Collection<T>),
        inserting: (doc: T) =>
          writing(() => {
            insert(doc);
            return true;
          }),
        ensuring: (doc: T) =>
          writing(() => {
            const isThere = (other: T) =>
              ['id', ...unique].some((field) => fieldOf(other, field) === fieldOf(doc, field));
            if (!all().some(isThere)) put(doc);
            return true;
          }),
        changing: (where: Where<T>, change: Change<T>) =>
          writing(() => changeFirst(where as never, change as never) !== null),
        deleting: (where: Where<T>) => writing(() => deleteFirst(where as never) !== null),
      };
    },
    async commit(writes) {
      const all = writes as MemoryWrite[];
      const docs = all.map((one) => one.docs);
      return (await call(`${all[0]?.collection}.commit`, docs, () => commit(all))) as Commit;
    },
    ready: async () => undefined,
    close: async () => undefined,
  };
}

const fieldOf = (doc: object, field: string): unknown => (doc as Record<string, unknown>)[field];

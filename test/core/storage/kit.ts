/** Helpers of the storage tests. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import type { Test } from 'tap';
import type { Collection, Store } from '../../../src/core/storage/collection.js';
import { openStore } from '../../../src/core/storage/open.js';

/** Returns the URI of a new, empty database. */
export type Fresh = (t: Test) => string;

/** A document with one field of each kind. */
export interface Thing {
  id: string;
  email: string;
  at?: number | null;
  group?: string | null;
  open?: boolean;
  count?: number;
  label?: string | null;
  free?: unknown;
}

/** The declaration of `things`. */
export const DECLARATION = {
  unique: ['email'],
  indexes: [['at'], ['group', 'at'], ['open'], ['count']],
  sparse: ['label'],
  numbers: ['at', 'count'],
  booleans: ['open'],
} as const;

/** The collection that these tests use. */
export function things(store: Store): Collection<Thing> {
  return store.collection<Thing>('things', DECLARATION);
}

/** A document of which only the ID matters. */
export function thing(id: string, more: Partial<Thing> = {}): Thing {
  return { id, email: `${id}@example.com`, ...more };
}

/** Starts `worker.js` and waits until it has opened the store. */
export async function startWorker(t: Test, uri: string, task: string): Promise<ChildProcess> {
  // Without the options that the test runner adds to its processes.
  const child = fork(new URL('./worker.js', import.meta.url), [uri, task], { execArgv: [] });
  t.teardown(() => child.kill('SIGKILL'));
  await once(child, 'message');
  return child;
}

/** An open store on a new database. */
export async function begin(
  t: Test,
  fresh: Fresh,
): Promise<{ uri: string; store: Store; all: Collection<Thing> }> {
  const uri = fresh(t);
  const store = await openStore(uri);
  t.teardown(() => store.close());
  return { uri, store, all: things(store) };
}

/** Runs the same tests on each engine. */
import { isTested } from '../../kit/engine.js';
import { temporaryFolder } from '../../kit/tmp.js';
import type { Fresh } from './kit.js';
import { onMongod } from './mongod.js';
import { onPostgres } from './postgres.js';

type Tests = (engine: string, fresh: Fresh) => void;

/** On each engine, or on those of TEST_ENGINES. */
export async function onEngines(tests: Tests): Promise<void> {
  if (isTested('sqlite')) tests('SQLite', (t) => `sqlite:${temporaryFolder(t)}/store.db`);
  await onServers(tests);
}

/** On those engines that are a server. */
export async function onServers(tests: Tests): Promise<void> {
  await onMongod(({ fresh }) => tests('MongoDB', fresh));
  await onPostgres(({ fresh }) => tests('PostgreSQL', fresh));
}

import { performance } from 'node:perf_hooks';
import { readSecret } from '../../src/core/config/options.js';
import { copyStore } from '../../src/core/server/copy.js';
import { storeUriOf } from '../../src/core/server/options.js';
import { engineFor, storeUriProblem } from '../../src/core/storage/engines.js';
import type { CommandLine, CommonOptions } from '../command.js';
import type { Program } from '../program.js';
import { createProgress } from '../progress.js';
import { complain, fail, say, sentences } from '../terminal.js';

const COPY = `Copy the store into an empty one of any engine and verify the copy. Stop all programs that use \
the source first. Repeat the command after an interruption: it continues.`;

const ARGUMENT = 'URI, or name of the environment variable that contains it (as a file: <name>_FILE)';

const SQL = `Print the SQL that creates the schema, tables, columns, indexes and views that a PostgreSQL database lacks, for a role \
that may create them. Nothing is changed.`;

type CopyOptions = CommonOptions & { stopped?: true };
type SqlOptions = CommonOptions & { all?: true };

export function define(group: CommandLine, program: Program): void {
  const { name, storeVariable } = program;
  const copies = [
    `${name} store copy ${storeVariable} NEW_DATABASE_URI`,
    `${name} store copy sqlite:backup.db NEW_DATABASE_URI --stopped`,
    `${name} store copy ${storeVariable} sqlite:data/new.db --json`,
  ] as const;
  const prints = [
    `${name} store sql | psql postgres://owner@localhost/app`,
    `${name} store sql --all`,
  ] as const;
  group.examples(...copies, ...prints);
  group
    .command('copy')
    .summary('Copy the store into an empty one of any engine')
    .description(COPY)
    .argument('<from>', `Source: ${ARGUMENT}`)
    .argument('<to>', `Target: ${ARGUMENT}, so that no password is visible in the list of processes`)
    .option(
      '--stopped',
      'Copy although the source was in use in the last 90 seconds: a backup, or after a kill',
    )
    .examples(...copies)
    .action((from: string, to: string, options: CopyOptions) => copy(program, from, to, options));
  group
    .command('sql')
    .summary('Print the SQL that creates the tables in PostgreSQL')
    .description(SQL)
    .argument('[uri]', `PostgreSQL database: ${ARGUMENT}`, storeVariable)
    .option('--all', 'Print everything, without a connection to the database')
    .examples(...prints)
    .action((uri: string, options: SqlOptions) => printSql(program, uri, options));
}

async function printSql(
  { name, storeVariable, loadCollections }: Program,
  given: string,
  { json, all }: SqlOptions,
): Promise<void> {
  // The names of the tables do not depend on the database.
  const isAnyDatabase = all && given === storeVariable && !readSecret(name, given);
  const uri = isAnyDatabase ? storeUriOf(name, 'postgres://localhost/any') : uriOf(name, 'uri', given);
  const engine = engineFor(uri)?.name;
  if (engine !== 'PostgreSQL')
    fail(2, `error: argument 'uri' is a store URI of ${engine}, which needs no SQL. Give one of PostgreSQL.`);
  try {
    const { postgresqlDefinitions } = await import('../../src/core/storage/postgresql/store.js');
    const { schema, definitions } = await postgresqlDefinitions(uri, await loadCollections(), all === true);
    if (json) return say(JSON.stringify({ schema, statements: definitions }));
    if (definitions.length === 0) return complain(`The schema ${schema} lacks nothing.`);
    say(['BEGIN', ...definitions, 'COMMIT'].map((statement) => `${statement};`).join('\n'));
  } catch (error) {
    if ((error as Error).name !== 'StoreUnavailable') throw error;
    fail(1, `${name} cannot read the database: ${sentences(error as Error)}`);
  }
}

async function copy(
  { name, loadCollections }: Program,
  from: string,
  to: string,
  { json, stopped }: CopyOptions,
): Promise<void> {
  const since = performance.now();
  const uris = { from: uriOf(name, 'from', from), to: uriOf(name, 'to', to) };
  const progress = {
    copied: createProgress({ name: 'documents copied', write: rounded }),
    verified: createProgress({ name: 'documents verified', write: rounded }),
  };
  try {
    const { collections, resumed, ignored } = await copyStore({
      ...uris,
      stopped,
      declareCollections: await loadCollections(),
      onProgress: (phase, done, total) => progress[phase].show(done, total),
    });
    progress.verified.end();
    const milliseconds = Math.round(performance.now() - since);
    const documents = collections.reduce((sum, one) => sum + one.documents, 0);
    if (json) return say(JSON.stringify({ documents, milliseconds, resumed, ignored, collections }));
    if (ignored.length > 0) complain(`Not copied, because ${name} does not use them: ${ignored.join(', ')}.`);
    say(`${rounded(documents)} documents copied and verified in ${(milliseconds / 1000).toFixed(1)} s`);
  } catch (error) {
    progress.verified.end();
    if ((error as Error).name !== 'StoreUnavailable' && !(error instanceof TypeError)) throw error;
    fail(1, `${name} cannot copy the store: ${sentences(error as Error)}`);
  }
}

/** Messages contain the name of the argument only, because its value may be a password. */
function uriOf(product: Program['name'], argument: string, given: string): string {
  const isVariable = /^[A-Z][A-Z0-9_]*$/.test(given);
  const uri = isVariable ? readSecret(product, given) : given;
  if (!uri) fail(2, `error: argument '${argument}': the environment variable ${given} is not set.`);
  const problem = storeUriProblem(uri);
  if (problem !== null) fail(2, `error: argument '${argument}' is not a valid store URI: ${problem}.`);
  return storeUriOf(product, uri);
}

function rounded(count: number): string {
  return Math.round(count).toLocaleString('en-US');
}

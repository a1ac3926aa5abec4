/** The database servers of the benchmark: those that the variables of the tests name, or started as for the tests (test/core/storage/README.md). */
import mongodbPlugin from '@fastify/mongodb';
import pg from 'pg';
import { databaseUri, startReplicaSet } from '../kit/mongod.js';
import { serverPort } from '../kit/port.js';
import { startPostgres } from '../kit/postgres.js';

/** A running server. */
export interface DatabaseServer {
  /** The URI of a new database, in PostgreSQL of a new schema. */
  newDatabase(): string;
  /** Removes them. The programs that use them must have ended. */
  clear(): Promise<void>;
  /** Stops it and removes its data, if it is ours. */
  stop(): Promise<void>;
}

export const SERVERS = { PostgreSQL: startPostgresql, MongoDB: startMongod };

export type ServerEngine = keyof typeof SERVERS;

/** A replica set of one. @throws if there is no mongod */
export async function startMongod(): Promise<DatabaseServer> {
  const given = process.env['TEST_MONGODB_URI'];
  if (given) return mongodAt(given);
  const set = await startReplicaSet({ ports: [await serverPort()] });
  return mongodAt(set.getUri(), async () => void (await set.stop()));
}

export function mongodAt(uri: string, stop?: () => Promise<void>): DatabaseServer {
  return serverOf(
    (name) => databaseUri(uri, name),
    async (names) => {
      const client = await new mongodbPlugin.mongodb.MongoClient(uri).connect();
      for (const name of names) await client.db(name).dropDatabase();
      await client.close();
    },
    stop,
  );
}

/** With the settings of PostgreSQL itself: every commit is on disk before it is acknowledged. */
async function startPostgresql(): Promise<DatabaseServer> {
  const given = process.env['TEST_POSTGRESQL_URI'];
  if (given) return postgresqlAt(given);
  const server = await startPostgres({ shared_buffers: '128MB' });
  return postgresqlAt(server.uri, () => server.stop());
}

export function postgresqlAt(uri: string, stop?: () => Promise<void>): DatabaseServer {
  return serverOf(
    (name) => withSchema(uri, name),
    async (names) => {
      await onPostgresql(
        uri,
        names.map((name) => `DROP SCHEMA IF EXISTS ${name} CASCADE`),
      );
    },
    stop,
  );
}

function withSchema(uri: string, schema: string): string {
  const url = new URL(uri);
  url.searchParams.set('schema', schema);
  return url.href;
}

/** Executes statements, and returns the rows of the last one. */
export async function onPostgresql(
  uri: string,
  statements: readonly string[],
): Promise<Record<string, string>[]> {
  const client = new pg.Client({ connectionString: uri });
  await client.connect();
  let rows: Record<string, string>[] = [];
  for (const statement of statements) ({ rows } = await client.query(statement));
  await client.end();
  return rows;
}

/** @param stop absent if the server is not ours */
function serverOf(
  uriOf: (name: string) => string,
  remove: (names: readonly string[]) => Promise<void>,
  stop?: () => Promise<void>,
): DatabaseServer {
  const names: string[] = [];
  let count = 0;
  const clear = async () => remove(names.splice(0));
  return {
    newDatabase() {
      const name = `saas_backend_test_bench_${process.pid}_${++count}`;
      names.push(name);
      return uriOf(name);
    },
    clear,
    stop: stop ?? clear,
  };
}

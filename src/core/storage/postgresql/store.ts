/** The engine for PostgreSQL 14 and later: a schema in a database. */
import { performance } from 'node:perf_hooks';
import { systemRandom } from '../../kernel/secrets.js';
import { Background, CALL_TIMEOUT_MS, latencyOf, onceStarted } from '../calls.js';
import {
  checkedStore,
  type EngineModule,
  type ReadableDatabase,
  rejectNewerLayout,
} from '../checked-store.js';
import type { Shape } from '../checks.js';
import { type Store, StoreUnavailable } from '../collection.js';
import type { HostPool } from '../host-database.js';
import { postgresqlCollection } from './collection.js';
import { createCommits, type PostgresqlWrite } from './commits.js';
import { Connection, type Send } from './connection.js';
import { isStarting } from './errors.js';
import { openSource, type Source } from './pool.js';
import {
  createMissing,
  hasColumns,
  indexing,
  LAYOUT_TABLE,
  MARKER_TABLE,
  missingDefinitions,
  readTables,
  tableName,
} from './schema.js';

/** Version of the layout of the tables. Increment it when older versions can no longer read them. */
const SCHEMA_VERSION = 1;

const MIN_SERVER_VERSION = 14;

/** Opens the schema of a URI, or one in the database of a host's pool, and creates it. */
export async function openPostgresql(source: string | HostPool): Promise<Store> {
  const { connection, schema } = await connect(source);
  try {
    await createMissing(connection, schema, []);
    await connection.write((send) => writeSchemaVersion(send, schema));
  } catch (error) {
    await connection.close();
    throw error;
  }
  return storeOf(connection, schema, []);
}

/**
 * The statements that create what a store lacks. Changes nothing.
 *
 * @param declareCollections declares the collections of the product
 * @param all whether to return everything, without a connection
 */
export async function postgresqlDefinitions(
  uri: string,
  declareCollections: (store: Store) => void,
  all: boolean,
): Promise<{ schema: string; definitions: string[] }> {
  const { connection, schema } = all ? connectLater(await openSource(uri)) : await connect(uri);
  const declared: Shape[] = [];
  const store = storeOf(connection, schema, declared);
  try {
    declareCollections(store);
    const tables = all ? null : await connection.read((send) => readTables(send, schema));
    return { schema, definitions: missingDefinitions(schema, tables, declared) };
  } finally {
    await store.close();
  }
}

/** @param declared receives the shape of each declared collection */
function storeOf(connection: Connection, schema: string, declared: Shape[]): Store {
  const create = createTables(connection, schema);
  const processId = systemRandom.bytes(16).toString('hex');
  const background = new Background();
  const indexed = new Set<Shape>();
  const commit = createCommits(connection, tableName(schema, MARKER_TABLE), processId);
  return checkedStore({
    collection(shape) {
      declared.push(shape);
      return postgresqlCollection(shape, schema, connection, () => create([shape]));
    },
    commit: (writes) => commit(writes as readonly PostgresqlWrite[]),
    requestTimeoutMs: CALL_TIMEOUT_MS,
    serverTime: () => connection.read(readServerTime),
    async ready() {
      await create(declared);
      await connection.write((send) => probe(send, schema));
      for (const shape of declared) {
        if (shape.text.length === 0 || indexed.has(shape)) continue;
        indexed.add(shape);
        const addSome = async (send: Send) => ((await send(indexing(schema, shape)))[0] ?? []).length > 0;
        void background.repeat(() => connection.write(addSome));
      }
    },
    close() {
      background.end();
      return connection.close();
    },
  });
}

/** Describes a server and schema, without changing them. @throws the error of opening it, if it is known by then */
async function inspectPostgresql(uri: string): Promise<string> {
  return withConnection(uri, async (connection, schema) => {
    const startedAt = performance.now();
    const version = await connection.read(checkServer);
    const latency = latencyOf(startedAt);
    const tables = await connection.read((send) => readTables(send, schema));
    const missing = missingDefinitions(schema, tables, []);
    if (missing.length === 0) await connection.read((send) => checkTables(send, schema));
    else await connection.read((send) => checkPrivileges(send, schema, missing));
    const state = missing.length === 0 ? '' : '; the first start creates its tables';
    return `answers in ${latency}: PostgreSQL ${version}, schema ${schema}${state}`;
  });
}

/** Without creating tables, columns or indexes. */
function readPostgresql<R>(uri: string, step: (database: ReadableDatabase) => Promise<R>): Promise<R> {
  return withConnection(uri, async (connection, schema) => {
    const tables = await connection.read((send) => readTables(send, schema));
    return step({
      async collection<T extends { id: string }>(shape: Shape) {
        return hasColumns(tables, shape)
          ? postgresqlCollection<T>(shape, schema, connection, () => undefined)
          : null;
      },
      collectionNames: async () =>
        [...(tables ?? [])].filter(([, { isView }]) => !isView).map(([name]) => name),
      serverTime: () => connection.read(readServerTime),
    });
  });
}

export const engine: EngineModule = {
  open: openPostgresql,
  inspect: inspectPostgresql,
  read: readPostgresql,
};

/** Waits until the server has started, and checks it. */
async function connect(source: string | HostPool): Promise<{ connection: Connection; schema: string }> {
  const { connection, schema } = connectLater(await openSource(source));
  try {
    await onceStarted(() => connection.read(checkServer), isStarting);
    return { connection, schema };
  } catch (error) {
    await connection.close();
    throw error;
  }
}

function connectLater({ pool, schema, release }: Source): { connection: Connection; schema: string } {
  return { connection: new Connection(pool, release), schema };
}

async function withConnection<R>(
  uri: string,
  step: (connection: Connection, schema: string) => Promise<R>,
): Promise<R> {
  const { connection, schema } = await connect(uri);
  try {
    return await step(connection, schema);
  } finally {
    await connection.close();
  }
}

/** Returns the version of the server. */
async function checkServer(send: Send): Promise<string> {
  const text = "SELECT current_setting('server_version'), current_setting('server_version_num')::int / 10000";
  const [[[version = '', major] = []] = []] = await send({ text, values: [] });
  if (Number(major) < MIN_SERVER_VERSION)
    throw new StoreUnavailable(
      `PostgreSQL ${MIN_SERVER_VERSION} or later is required, and the server is ${version}`,
    );
  return version as string;
}

async function readServerTime(send: Send): Promise<number> {
  const text = 'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint';
  const [[[time] = []] = []] = await send({ text, values: [] });
  return Number(time);
}

/** Creates tables once, at their first use; after a failure, the next use tries again. */
function createTables(
  connection: Connection,
  schema: string,
): (shapes: readonly Shape[]) => Promise<void> | undefined {
  const present = new Set<string>();
  const creating = new Map<string, Promise<void>>();
  return (shapes) => {
    const missing = shapes.filter(({ name }) => !present.has(name));
    if (missing.length === 0) return undefined;
    const started = missing.filter(({ name }) => !creating.has(name));
    if (started.length > 0) {
      const created = createMissing(connection, schema, started)
        .then(() => {
          for (const { name } of started) present.add(name);
        })
        .finally(() => {
          for (const { name } of started) creating.delete(name);
        });
      for (const { name } of started) creating.set(name, created);
    }
    return Promise.all(missing.map(({ name }) => creating.get(name))).then(() => undefined);
  };
}

/** Also forgets the markers of processes that have ended long ago. */
async function writeSchemaVersion(send: Send, schema: string): Promise<void> {
  const [[[version] = []] = []] = await send(
    {
      text: `INSERT INTO ${tableName(schema, LAYOUT_TABLE)} AS layout (id, version) VALUES ('layout', $1)
        ON CONFLICT (id) DO UPDATE SET version = greatest(layout.version, $1) RETURNING version`,
      values: [String(SCHEMA_VERSION)],
    },
    {
      text: `DELETE FROM ${tableName(schema, MARKER_TABLE)} WHERE at < now() - interval '7 days'`,
      values: [],
    },
  );
  rejectNewerLayout(`the schema ${schema}`, Number(version), SCHEMA_VERSION);
}

/** @throws StoreUnavailable if the tables are those of a newer version, or not granted to the user */
async function checkTables(send: Send, schema: string): Promise<void> {
  const isGranted = PRIVILEGES.map((privilege) => `has_table_privilege(oid, '${privilege}')`).join(' AND ');
  const [[[version] = []] = [], [[refused] = []] = []] = await send(
    { text: `SELECT version FROM ${tableName(schema, LAYOUT_TABLE)}`, values: [] },
    {
      // Without the tables of others.
      text: `SELECT string_agg(relname, ', ' ORDER BY relname) FROM pg_class AS c
        WHERE relnamespace = to_regnamespace($1) AND relkind IN ('r', 'p') AND NOT (${isGranted})
        AND (relname = '${MARKER_TABLE}' OR EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = c.oid AND attname = 'doc'))`,
      values: [schema],
    },
  );
  rejectNewerLayout(`the schema ${schema}`, Number(version ?? SCHEMA_VERSION), SCHEMA_VERSION);
  if (!refused) return;
  throw new StoreUnavailable(
    `PostgreSQL: the user may not read and write in the schema ${schema}: ${refused}`,
    {
      remedy: `GRANT ${PRIVILEGES.join(', ')} ON ALL TABLES IN SCHEMA ${schema} TO the user of the URI.`,
    },
  );
}

const PRIVILEGES = ['SELECT', 'INSERT', 'UPDATE', 'DELETE'];

/** Fails if the database is read-only, although nothing is written, and if the tables cannot be used any more. */
async function probe(send: Send, schema: string): Promise<void> {
  const text = `UPDATE ${tableName(schema, LAYOUT_TABLE)} SET version = version WHERE false`;
  await send({ text, values: [] });
  await checkTables(send, schema);
}

/** @throws StoreUnavailable if the user may not create what is missing */
async function checkPrivileges(send: Send, schema: string, missing: readonly string[]): Promise<void> {
  const text = `SELECT CASE WHEN to_regnamespace($1) IS NULL
    THEN has_database_privilege(current_database(), 'CREATE') ELSE has_schema_privilege($1, 'CREATE') END`;
  const [[[isAllowed] = []] = []] = await send({ text, values: [schema] });
  if (isAllowed === 't') return;
  throw new StoreUnavailable(`PostgreSQL: the user may not create tables in the schema ${schema}`, {
    remedy: `Let a user who may create them run this SQL:\n${missing.map((one) => `${one};`).join('\n')}`,
  });
}

/** The engine for several machines: a MongoDB replica set or sharded cluster, through its own client or the host's. */
import { performance } from 'node:perf_hooks';
import mongodbPlugin, { type mongodb } from '@fastify/mongodb';
import fastify from 'fastify';
import { Background, CALL_TIMEOUT_MS, latencyOf, onceStarted } from '../calls.js';
import {
  checkedStore,
  type EngineModule,
  type ReadableDatabase,
  rejectNewerLayout,
} from '../checked-store.js';
import type { Shape } from '../checks.js';
import { type Collection, type Store, StoreUnavailable } from '../collection.js';
import type { HostDatabase } from '../host-database.js';
import { createIndexes, fillParts, mongodbCollection } from './collection.js';
import { type Call, Connection, type MongoCollection, translateUniqueViolation } from './connection.js';
import { CurrentReads } from './current-reads.js';
import type { Stored } from './query.js';
import { createCommits, type MongodbWrite, mongodbWrites } from './writes.js';

/** Version of the document layout. Increment it when older versions can no longer read the documents. */
const SCHEMA_VERSION = 1;

/** The wire protocol version of MongoDB 6.0. */
const MIN_WIRE_VERSION = 17;

/** https://github.com/mongodb/mongo/blob/master/src/mongo/base/error_codes.yml */
const AUTHENTICATION_FAILED = 18;

/** Shorter than the call timeout, so that the driver's own error is reported. */
const DRIVER_TIMEOUT_MS = CALL_TIMEOUT_MS - 500;

/**
 * No socketTimeoutMS: it would interrupt index builds. The driver's monitor detects a server that hangs after
 * `heartbeatFrequencyMS` and `connectTimeoutMS`, closes its sockets and repeats the calls on the new primary. With the
 * defaults, which add up to 40 seconds, no call that has reached a hanging primary would see the next one.
 */
const CLIENT_OPTIONS: mongodb.MongoClientOptions = {
  serverSelectionTimeoutMS: DRIVER_TIMEOUT_MS,
  connectTimeoutMS: 2000,
  heartbeatFrequencyMS: 1000,
  retryReads: true,
  retryWrites: true,
  // Otherwise, writes of requests that have timed out would be sent once the server is back.
  waitQueueTimeoutMS: DRIVER_TIMEOUT_MS,
};

/** Set for each collection, so that neither the URI nor a host's client weakens them. */
const COLLECTION_OPTIONS: mongodb.CollectionOptions = {
  writeConcern: { w: 'majority', j: true, wtimeoutMS: DRIVER_TIMEOUT_MS },
  readConcern: { level: 'majority' },
  readPreference: 'primary',
  ignoreUndefined: false,
  promoteValues: true,
  promoteLongs: true,
  useBigInt64: false,
};

interface OpenDatabase {
  db: mongodb.Db;
  release: () => Promise<void>;
}

/** Opens the database of a URI, or a host's database, where collection names get a prefix. */
export async function openMongodb(source: string | HostDatabase): Promise<Store> {
  const ownsClient = typeof source === 'string';
  const { db, release } = ownsClient ? await connect(source) : useHostDatabase(source);
  const prefix = ownsClient ? '' : source.prefix;
  const connection = new Connection(release);
  const reads = new CurrentReads(db.client, () => writeNothing(db, prefix));
  try {
    await onceStarted(async () => {
      await connection.call(() => checkDeployment(db));
      await connection.call(() => writeSchemaVersion(db, prefix));
      // So that the first request does not wait for it.
      await connection.call(() => reads.read(async () => undefined));
    }, isElecting);
  } catch (error) {
    reads.stop();
    await connection.close();
    throw error;
  }
  const declared: (() => Promise<void>)[] = [];
  const background = new Background();
  const unfilled = new Set<() => Promise<boolean>>();
  const commit = createCommits(db.client, connection);
  return checkedStore({
    collection<T extends { id: string }>(shape: Shape): Collection<T> {
      const collection = db.collection<Stored>(prefix + shape.name, COLLECTION_OPTIONS);
      const indexed = indexBuilder(collection, shape);
      declared.push(indexed);
      const call: Call = (step) =>
        connection.call(async () => {
          await indexed();
          return translateUniqueViolation(shape.name, step(collection));
        });
      if (shape.text.length > 0) unfilled.add(() => call((collection) => fillParts(collection, shape)));
      const documents = mongodbCollection<T>(shape, call, (step) =>
        call((collection) => reads.read(() => step(collection))),
      );
      return { ...documents, ...mongodbWrites<T>(shape.name, collection, shape, indexed) };
    },
    commit: (writes) => commit(writes as readonly MongodbWrite[]),
    requestTimeoutMs: CALL_TIMEOUT_MS,
    serverTime: () => connection.call(() => readServerTime(db)),
    async ready() {
      // One timeout per collection: creating them in a new database is slow on a slow disk.
      for (const indexed of declared) await connection.call(indexed);
      await connection.call(() => readSchemaVersion(db, prefix));
      for (const fill of unfilled) void background.repeat(fill);
      unfilled.clear();
    },
    async close() {
      background.end();
      reads.stop();
      await connection.close();
    },
  });
}

/** Checks whether a database can be opened, without changing it. @throws the error of opening it */
function inspectMongodb(uri: string): Promise<string> {
  return withDatabase(uri, async (db, connection) => {
    await connection.call(() => checkDeployment(db));
    await connection.call(() =>
      db.client.withSession(async (session) => {
        session.startTransaction();
        await writeSchemaVersion(db, '', session).finally(() => session.abortTransaction());
      }),
    );
    const startedAt = performance.now();
    const { version } = await connection.call(() => db.command({ buildInfo: 1 }));
    return `answers in ${latencyOf(startedAt)}: MongoDB ${version}`;
  });
}

async function readServerTime(db: mongodb.Db): Promise<number> {
  const { localTime } = await db.command({ hello: 1 }, { readPreference: 'primary' });
  return (localTime as Date).getTime();
}

/** Without creating collections or indexes. A missing collection is empty. */
function readMongodb<R>(uri: string, step: (database: ReadableDatabase) => Promise<R>): Promise<R> {
  return withDatabase(uri, (db, connection) =>
    step({
      async collection<T extends { id: string }>(shape: Shape) {
        const collection = db.collection<Stored>(shape.name, COLLECTION_OPTIONS);
        return mongodbCollection<T>(shape, (read) => connection.call(() => read(collection)));
      },
      async collectionNames() {
        const options = { nameOnly: true, readPreference: 'primary' } as const;
        const found = await connection.call(() => db.listCollections({}, options).toArray());
        return found.map(({ name }) => name);
      },
      serverTime: () => connection.call(() => readServerTime(db)),
    }),
  );
}

async function withDatabase<R>(
  uri: string,
  step: (db: mongodb.Db, connection: Connection) => Promise<R>,
): Promise<R> {
  const { db, release } = await connect(uri);
  const connection = new Connection(release);
  try {
    return await step(db, connection);
  } finally {
    await connection.close();
  }
}

export const engine: EngineModule = { open: openMongodb, inspect: inspectMongodb, read: readMongodb };

/**
 * @fastify/mongodb decorates its instance, and the host may have registered it, too: a separate instance avoids the
 * collision.
 */
const connect = (uri: string): Promise<OpenDatabase> => onceStarted(() => tryToConnect(uri), isElecting);

async function tryToConnect(uri: string): Promise<OpenDatabase> {
  const instance = fastify();
  try {
    await instance.register(mongodbPlugin, { url: uri, ...CLIENT_OPTIONS });
    await instance.ready();
  } catch (error) {
    await instance.close();
    throw toOpenError(error as Error);
  }
  return { db: instance.mongo.client.db(), release: () => instance.close() };
}

/** Whether the driver has found members of a replica set, but no primary. */
function isElecting(error: unknown): boolean {
  const { name = '', reason } = ((error as Error).cause ?? error) as Error & {
    reason?: mongodb.TopologyDescription;
  };
  const types = [...(reason?.servers?.values() ?? [])].map(({ type }) => type);
  const hasMember = types.includes('RSSecondary') || types.includes('RSOther');
  // Or the primary was lost while it processed the step.
  return hasMember || /^Mongo(?:Network|Pool)/.test(name);
}

/** Errors of a server or the DNS are safe to print; others describe the URI and may contain part of its password. */
function toOpenError(error: Error): Error {
  if (/^Mongo(?:Server|Network)/.test(error.name) || 'syscall' in error) {
    const isRefusal = (error as { code?: unknown }).code === AUTHENTICATION_FAILED;
    const remedy = isRefusal
      ? 'Correct the user, the password or authSource in its URI.'
      : 'Start it, or correct the hosts in its URI.';
    return new StoreUnavailable(`MongoDB: ${error.message}`, { cause: error, remedy });
  }
  return new TypeError(
    'the MongoDB URI cannot be read: check its hosts and options, and percent-encode special characters in its password',
  );
}

function useHostDatabase({ mongo }: HostDatabase): OpenDatabase {
  return { db: (mongo.db ?? mongo.client.db()) as mongodb.Db, release: async () => {} };
}

async function checkDeployment(db: mongodb.Db): Promise<void> {
  const { setName, msg, maxWireVersion } = await db.command({ hello: 1 }, { readPreference: 'primary' });
  if (maxWireVersion < MIN_WIRE_VERSION) throw new Error('MongoDB 6.0 or later is required');
  if (setName === undefined && msg !== 'isdbgrid') {
    throw new Error(
      'MongoDB runs as a single server, where a write cannot be repeated safely: make it a replica set, ' +
        'one member is enough (mongod --replSet rs0, then rs.initiate())',
    );
  }
}

async function writeSchemaVersion(
  db: mongodb.Db,
  prefix: string,
  session?: mongodb.ClientSession,
): Promise<void> {
  const stored = await schemaVersions(db, prefix).findOneAndUpdate(
    { _id: 'layout' },
    { $max: { version: SCHEMA_VERSION } },
    { upsert: true, returnDocument: 'after', ...(session && { session }) },
  );
  rejectNewerLayout(db.databaseName, stored?.version ?? SCHEMA_VERSION, SCHEMA_VERSION);
}

/** A write that changes nothing. The majority confirms it after all writes before it. */
function writeNothing(db: mongodb.Db, prefix: string): Promise<unknown> {
  return schemaVersions(db, prefix).updateOne({ _id: 'layout' }, { $max: { version: 0 } });
}

/** Throws if a newer version has changed the layout since this process started. */
async function readSchemaVersion(db: mongodb.Db, prefix: string): Promise<void> {
  const stored = await schemaVersions(db, prefix).findOne({ _id: 'layout' });
  rejectNewerLayout(db.databaseName, stored?.version ?? SCHEMA_VERSION, SCHEMA_VERSION);
}

function schemaVersions(db: mongodb.Db, prefix: string) {
  // Declared collection names cannot begin with an underscore.
  return db.collection<{ _id: string; version: number }>(`${prefix}_layout`, COLLECTION_OPTIONS);
}

/** Creates the indexes once, at the first use; after a failure, the next use tries again. */
function indexBuilder(collection: MongoCollection, shape: Shape): () => Promise<void> {
  let creating: Promise<void> | undefined;
  return () => {
    creating ??= translateUniqueViolation(shape.name, createIndexes(collection, shape)).catch((error) => {
      creating = undefined;
      throw error;
    });
    return creating;
  };
}

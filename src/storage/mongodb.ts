/** The engine for many machines: a MongoDB replica set or sharded cluster, our own connection or the host's. */
import mongodbPlugin, { type mongodb } from '@fastify/mongodb';
import fastify from 'fastify';
import type { Shape } from './checks.js';
import { type Store, StoreUnavailable } from './collection.js';
import { guarded } from './guarded.js';
import type { HostDatabase } from './host-database.js';
import { createIndexes, type Driven, mongodbCollection } from './mongodb-collection.js';
import { Connection, namingTheField, PATIENCE } from './mongodb-connection.js';
import type { Stored } from './mongodb-query.js';

/** The layout of the collections. Raise it when what is written so can no longer be read by what came before. */
const SCHEMA = 1;

/** Of MongoDB 6.0, in the numbers of its protocol. */
const OLDEST_WIRE_VERSION = 17;

/** https://github.com/mongodb/mongo/blob/master/src/mongo/base/error_codes.yml */
const AUTHENTICATION_FAILED = 18;

/** Below the patience, so that the driver's own reason is heard first. */
const DRIVER_PATIENCE = PATIENCE - 500;

/**
 * No socketTimeoutMS: it would cut off the making of an index. The driver's monitor finds a server that hangs and
 * drops the sockets of whoever waits for it.
 */
const CLIENT_OPTIONS: mongodb.MongoClientOptions = {
  serverSelectionTimeoutMS: DRIVER_PATIENCE,
  connectTimeoutMS: DRIVER_PATIENCE,
  // Or what nobody waits for any more would be written once the server is back.
  waitQueueTimeoutMS: DRIVER_PATIENCE,
};

/** Said for each collection, whatever the URI says, and the client of a host. */
const COLLECTION_OPTIONS: mongodb.CollectionOptions = {
  writeConcern: { w: 'majority', j: true, wtimeoutMS: DRIVER_PATIENCE },
  readConcern: { level: 'majority' },
  readPreference: 'primary',
  ignoreUndefined: false,
  promoteValues: true,
  promoteLongs: true,
  useBigInt64: false,
};

interface Opened {
  db: mongodb.Db;
  release: () => Promise<void>;
}

/** Opens the database that a URI names, or that of a host, in which our collections begin with a prefix. */
export async function openMongodb(source: string | HostDatabase): Promise<Store> {
  const isOurs = typeof source === 'string';
  const { db, release } = isOurs ? await connect(source) : borrow(source);
  const prefix = isOurs ? '' : source.prefix;
  const connection = new Connection(release);
  try {
    await connection.call(() => checkDeployment(db));
    await connection.call(() => checkLayout(db, prefix));
  } catch (error) {
    await connection.close();
    throw error;
  }
  const declared: (() => Promise<void>)[] = [];
  return guarded({
    collection(shape) {
      const collection = db.collection<Stored>(prefix + shape.name, COLLECTION_OPTIONS);
      const indexed = indexesOf(collection, shape);
      declared.push(indexed);
      return mongodbCollection(shape, (step) =>
        connection.call(async () => {
          await indexed();
          return namingTheField(shape.name, step(collection));
        }),
      );
    },
    async ready() {
      // Each with a patience of its own: on a slow disk the collections of a new database take their time.
      for (const indexed of declared) await connection.call(indexed);
      await connection.call(() => db.command({ ping: 1 }, { readPreference: 'primary' }));
    },
    close: () => connection.close(),
  });
}

/** Whether a database could be opened, told without writing to it. @throws what opening it would throw */
export async function inspectMongodb(uri: string): Promise<void> {
  const { db, release } = await connect(uri);
  const connection = new Connection(release);
  try {
    await connection.call(() => checkDeployment(db));
    const layout = await connection.call(() => layoutsOf(db, '').findOne({ _id: 'layout' }));
    refuseNewer(db, layout?.version ?? SCHEMA);
  } finally {
    await connection.close();
  }
}

/** @fastify/mongodb decorates the instance it gets. A host may use it too, so ours gets one that never listens. */
async function connect(uri: string): Promise<Opened> {
  const vault = fastify();
  try {
    await vault.register(mongodbPlugin, { url: uri, ...CLIENT_OPTIONS });
    await vault.ready();
  } catch (error) {
    await vault.close();
    throw openingFailure(error as Error);
  }
  return { db: vault.mongo.client.db(), release: () => vault.close() };
}

/** What a server or the DNS says may be told; anything else is about the URI, and may hold a part of its password. */
function openingFailure(error: Error): Error {
  if (/^Mongo(?:Server|Network)/.test(error.name) || 'syscall' in error) {
    const isRefusal = (error as { code?: unknown }).code === AUTHENTICATION_FAILED;
    const remedy = isRefusal
      ? 'Correct the user, the password or authSource in its URI.'
      : 'Start it, or correct the hosts in its URI.';
    return new StoreUnavailable(`MongoDB: ${error.message}`, { cause: error, remedy });
  }
  return new TypeError(
    'the MongoDB URI cannot be read: check its hosts and options, and percent-encode what is special in its password',
  );
}

function borrow({ mongo }: HostDatabase): Opened {
  return { db: (mongo.db ?? mongo.client.db()) as mongodb.Db, release: async () => {} };
}

async function checkDeployment(db: mongodb.Db): Promise<void> {
  const { setName, msg, maxWireVersion } = await db.command({ hello: 1 }, { readPreference: 'primary' });
  if (maxWireVersion < OLDEST_WIRE_VERSION) throw new Error('MongoDB 6.0 or later is needed');
  if (setName === undefined && msg !== 'isdbgrid') {
    throw new Error(
      'MongoDB runs as a single server, where a write cannot be repeated safely: make it a replica set, ' +
        'one member is enough (mongod --replSet rs0, then rs.initiate())',
    );
  }
}

async function checkLayout(db: mongodb.Db, prefix: string): Promise<void> {
  const layout = await layoutsOf(db, prefix).findOneAndUpdate(
    { _id: 'layout' },
    { $max: { version: SCHEMA } },
    { upsert: true, returnDocument: 'after' },
  );
  refuseNewer(db, layout?.version ?? SCHEMA);
}

function layoutsOf(db: mongodb.Db, prefix: string) {
  // No collection that is declared can have this name.
  return db.collection<{ _id: string; version: number }>(`${prefix}_layout`, COLLECTION_OPTIONS);
}

function refuseNewer(db: mongodb.Db, version: number): void {
  if (version <= SCHEMA) return;
  throw new Error(
    `${db.databaseName} was written by a newer version (layout ${version}, this one reads ${SCHEMA}): ` +
      'install that version again, or restore the backup made before it',
  );
}

/** Creates the indexes at the first use, once; a failure is tried again by the next use. */
function indexesOf(collection: Driven, shape: Shape): () => Promise<void> {
  let creating: Promise<void> | undefined;
  return () => {
    creating ??= namingTheField(shape.name, createIndexes(collection, shape)).catch((error) => {
      creating = undefined;
      throw error;
    });
    return creating;
  };
}

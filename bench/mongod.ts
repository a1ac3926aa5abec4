/** The mongod of the MongoDB rows: TEST_MONGODB_URI, or one that is started as for the tests (docs/storage.md). */
import mongodbPlugin from '@fastify/mongodb';
import type { MongoMemoryReplSet } from 'mongodb-memory-server-core';
import { databaseUri, startReplicaSet } from '../test/kit/mongod.js';
import { serverPort } from '../test/kit/port.js';

/** A running replica set of one. */
export interface Mongod {
  /** The URI of a new database. */
  newDatabase(): string;
  /** Removes the databases. The programs that use them must have ended. */
  clear(): Promise<void>;
  /** Of its process; undefined if the server is not ours. */
  readonly pid: number | undefined;
  /** Stops it and removes its data. */
  stop(): Promise<void>;
}

/** Starts it. @throws if there is none */
export async function startMongod(): Promise<Mongod> {
  const given = process.env['TEST_MONGODB_URI'];
  if (given) return serverAt(given);
  const set = await startReplicaSet({ ports: [await serverPort()] });
  return serverAt(set.getUri(), set);
}

/** @param set the server, if it is ours */
function serverAt(uri: string, set?: MongoMemoryReplSet): Mongod {
  const pid = set?.servers[0]?.instanceInfo?.instance.mongodProcess?.pid;
  let names: string[] = [];
  let count = 0;
  const clear = async () => {
    const client = await new mongodbPlugin.mongodb.MongoClient(uri).connect();
    for (const name of names) await client.db(name).dropDatabase();
    names = [];
    await client.close();
  };
  return {
    newDatabase() {
      const name = `saas_backend_test_bench_${process.pid}_${++count}`;
      names.push(name);
      return databaseUri(uri, name);
    },
    clear,
    pid,
    stop: async () => void (await (set ? set.stop() : clear())),
  };
}

/** The mongod of the MongoDB rows: TEST_MONGODB_URI, or one that is started as for the tests (docs/storage.md). */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import mongodbPlugin from '@fastify/mongodb';
import { databaseUri, serverPort, startReplicaSet } from '../test/kit/mongod.js';

/** A running replica set of one. */
export interface Mongod {
  /** The URI of a new database. */
  newDatabase(): string;
  /** Removes the databases. The programs that use them must have ended. */
  clear(): Promise<void>;
  /** Seconds of processor time so far; undefined if the server is not ours or without /proc. */
  processorTime(): number | undefined;
}

/** Starts it. It ends with this process. @throws if there is none */
export async function startMongod(): Promise<Mongod> {
  const given = process.env['TEST_MONGODB_URI'];
  if (given) return serverAt(given);
  const dbPath = mkdtempSync(join(tmpdir(), 'saas-backend-mongod-'));
  process.once('exit', () => rmSync(dbPath, { recursive: true, force: true }));
  const set = await startReplicaSet({ ports: [await serverPort()], dbPath });
  const child = set.servers[0]?.instanceInfo?.instance.mongodProcess;
  if (!child) throw new Error('mongod did not start');
  process.prependOnceListener('exit', () => child.kill('SIGKILL'));
  return serverAt(set.getUri(), child.pid);
}

function serverAt(uri: string, pid?: number): Mongod {
  let names: string[] = [];
  let count = 0;
  return {
    newDatabase() {
      const name = `saas_backend_test_bench_${process.pid}_${++count}`;
      names.push(name);
      return databaseUri(uri, name);
    },
    async clear() {
      const client = await new mongodbPlugin.mongodb.MongoClient(uri).connect();
      for (const name of names) await client.db(name).dropDatabase();
      names = [];
      await client.close();
    },
    processorTime: () => (pid === undefined ? undefined : processorTime(pid)),
  };
}

/** Linux counts processor time in hundredths of a second. */
const TICKS_PER_SECOND = 100;

function processorTime(pid: number): number | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // After the name of the program, which may contain spaces: the state, ten numbers, then user and system time.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
  } catch {
    return undefined;
  }
}

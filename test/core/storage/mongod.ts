/**
 * A real mongod for the tests: the one named by TEST_MONGODB_URI, or a local one on loopback. `test/run.mjs` starts one for
 * all files and names it in SHARED_MONGODB_URI; files that stop or kill their server start their own.
 */
import { once } from 'node:events';
import mongodbPlugin, { type mongodb } from '@fastify/mongodb';
import t, { type Test } from 'tap';
import { isTested } from '../../kit/engine.js';
import { databaseUri, startReplicaSet } from '../../kit/mongod.js';
import { serverPort } from '../../kit/port.js';
import { withOrSkip } from '../../kit/skip.js';

const { MongoClient } = mongodbPlugin.mongodb;

/** A running replica set of one. */
export interface Mongod {
  /** The URI of a new database, which is dropped after the test. */
  fresh(t: Test): string;
  /** A separate client for the test. */
  client(t: Test, options?: mongodb.MongoClientOptions): mongodb.MongoClient;
  /** The process, to send it signals or restart it; null if it is not ours. */
  process: { signal(name: NodeJS.Signals): void; killAndRestart(): Promise<() => Promise<void>> } | null;
}

/** The servers of this process, which its files share: by address, and one that is started here. */
const servers = new Map<string, Promise<Mongod>>();

/** Runs tests on a server. Without one they are skipped, which is reported; with CI=true they fail. */
export const onMongod = (tests: (server: Mongod) => void): Promise<void> =>
  onServer(process.env['TEST_MONGODB_URI'] ?? process.env['SHARED_MONGODB_URI'], tests);

/** The same for tests that stop or kill the server, which no other file may use then. */
export const onOwnMongod = (tests: (server: Mongod) => void): Promise<void> =>
  onServer(process.env['TEST_MONGODB_URI'], tests);

async function onServer(uri: string | undefined, tests: (server: Mongod) => void): Promise<void> {
  // The gate proves on MongoDB what the engine promises, the campaign that each domain needs no more (.ci/sections.mjs).
  if (!isTested('mongodb')) return;
  const missing = {
    name: 'mongodb',
    subject: 'The MongoDB engine',
    want: 'a mongod',
    remedy:
      'Set TEST_MONGODB_URI to a replica set, or MONGOMS_SYSTEM_BINARY to a mongod (test/core/storage/README.md).',
  };
  const start = () => {
    const server = servers.get(uri ?? '') ?? (uri ? Promise.resolve(serverAt(uri, null)) : startOwn());
    servers.set(uri ?? '', server);
    return server;
  };
  await withOrSkip(missing, start, tests);
}

async function startOwn(): Promise<Mongod> {
  const set = await startReplicaSet({ ports: [await serverPort()] });
  t.teardown(() => set.stop());
  const [server] = set.servers;
  const child = server?.instanceInfo?.instance.mongodProcess;
  if (!server || !child) throw new Error('mongod did not start');
  let running = child;
  return serverAt(set.getUri(), {
    signal: (name) => void running.kill(name),
    async killAndRestart() {
      const exit = once(running, 'exit');
      running.kill('SIGKILL');
      await exit;
      return async () => {
        await server.stop({ doCleanup: false });
        await server.start(true);
        running = server.instanceInfo?.instance.mongodProcess ?? running;
      };
    },
  });
}

function serverAt(uri: string, process: Mongod['process']): Mongod {
  let databases = 0;
  const client: Mongod['client'] = (t, options) => {
    const client = new MongoClient(uri, options);
    t.teardown(() => client.close());
    return client;
  };
  return {
    client,
    process,
    fresh(t) {
      const name = `saas_backend_test_${globalThis.process.pid}_${++databases}`;
      const ours = client(t);
      t.teardown(() => ours.db(name).dropDatabase());
      return databaseUri(uri, name);
    },
  };
}

/** Starts a mongod as a replica set of one, on loopback: for the tests and the benchmark. */
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { MongoMemoryReplSet } from 'mongodb-memory-server-core';

/** How a local mongod is started. Its first write can take longer than ten seconds on a busy disk. */
export const INSTANCE = { storageEngine: 'wiredTiger', launchTimeout: 120_000 } as const;

interface ReplicaSetOptions {
  /** One member for each. */
  ports: readonly number[];
  configSettings?: Record<string, number>;
  /** Additional arguments of mongod. */
  args?: string[];
}

/** Starts a replica set. */
export async function startReplicaSet({
  ports,
  configSettings = {},
  args = [],
}: ReplicaSetOptions): Promise<MongoMemoryReplSet> {
  // Accepts any version of mongod.
  process.env['MONGOMS_SYSTEM_BINARY_VERSION_CHECK'] ??= 'false';
  const { storageEngine, launchTimeout } = INSTANCE;
  // The library prints each error that it throws, twice; the callers report it.
  const warn = console.warn;
  console.warn = () => {};
  return MongoMemoryReplSet.create({
    replSet: { storageEngine, count: ports.length, configSettings },
    instanceOpts: ports.map((port) => ({ launchTimeout, port, args })),
  }).finally(() => {
    console.warn = warn;
  });
}

/**
 * A port for a server. The system gives the ports from 32768 on to connections, also between the search for a free one and
 * the start of the server, or while it is restarted.
 */
export async function serverPort(): Promise<number> {
  const probe = createServer().unref();
  const port = randomInt(20_000, 32_768);
  try {
    await once(probe.listen(port, '127.0.0.1'), 'listening');
  } catch {
    return serverPort();
  }
  await new Promise((done) => probe.close(done));
  return port;
}

/** The URI of a database on the server of a URI. */
export function databaseUri(uri: string, name: string): string {
  return uri.replace(/^(mongodb(?:\+srv)?:\/\/[^/?]+)(?:\/[^?]*)?/, `$1/${name}`);
}

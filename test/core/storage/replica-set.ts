/** A real replica set of three members, whose members can be frozen, for the tests of outages. */
import mongodbPlugin, { type mongodb } from '@fastify/mongodb';
import t, { type Test } from 'tap';
import { startReplicaSet } from '../../kit/mongod.js';
import { serverPorts } from '../../kit/port.js';
import { withOrSkip } from '../../kit/skip.js';
import { waitUntil } from '../../kit/wait.js';

const { MongoClient } = mongodbPlugin.mongodb;

/** Short, so that the tests are. The default is ten seconds. */
const ELECTION_TIMEOUT_MS = 1000;

/** Members stop replicating from a frozen one after a second instead of five more. */
const ARGUMENTS = ['--setParameter', 'oplogNetworkTimeoutBufferSeconds=1'];

/** The reply to `hello`. */
interface Hello {
  primary?: string;
  isWritablePrimary?: boolean;
}

export interface ReplicaSet {
  /** The URI of a new database. */
  fresh(): string;
  client(t: Test, uri: string): mongodb.MongoClient;
  /** The address of the primary, once there is one. */
  primary(): Promise<string>;
  /** Freezes members, until the returned function is called or the test ends. */
  freeze(t: Test, which: (address: string) => boolean): () => void;
  /** Lets only this member become primary. */
  prefer(address: string): Promise<void>;
}

/** Runs tests on a replica set of this process. Without a mongod they are skipped, which is reported. */
export async function onReplicaSet(tests: (set: ReplicaSet) => void): Promise<void> {
  const missing = {
    name: 'mongodb-outages',
    subject: 'Outages of MongoDB',
    want: 'a mongod',
    remedy: 'Set MONGOMS_SYSTEM_BINARY to a mongod (test/core/storage/README.md).',
  };
  await withOrSkip(missing, start, tests);
}

async function start(): Promise<ReplicaSet> {
  const configSettings = { electionTimeoutMillis: ELECTION_TIMEOUT_MS, heartbeatIntervalMillis: 200 };
  const ports = await serverPorts(3);
  const set = await startReplicaSet({ ports, configSettings, args: ARGUMENTS });
  const members = set.servers.map(({ instanceInfo }) => {
    const child = instanceInfo?.instance.mongodProcess;
    if (!instanceInfo || !child) throw new Error('mongod did not start');
    return { address: `127.0.0.1:${instanceInfo.port}`, child };
  });
  t.teardown(async () => {
    for (const { child } of members) child.kill('SIGCONT');
    await set.stop();
  });
  const clientOf = (uri: string) => new MongoClient(uri, { serverSelectionTimeoutMS: 1000 });
  const operator = clientOf(set.getUri());
  t.teardown(() => operator.close());
  const hello = () => operator.db('admin').command({ hello: 1 }, { readPreference: 'primary' });
  let databases = 0;
  return {
    fresh: () => set.getUri(`saas_backend_test_${process.pid}_${++databases}`),
    client(t, uri) {
      const client = clientOf(uri);
      t.teardown(() => client.close());
      return client;
    },
    async primary() {
      let address: string | undefined;
      await waitUntil('a primary', async () => {
        const reply: Hello | null = await hello().catch(() => null);
        address = reply?.primary;
        return reply?.isWritablePrimary === true;
      });
      return address as string;
    },
    freeze(t, which) {
      const frozen = members.filter(({ address }) => which(address));
      for (const { child } of frozen) child.kill('SIGSTOP');
      const thaw = () => {
        for (const { child } of frozen) child.kill('SIGCONT');
      };
      t.teardown(thaw);
      return thaw;
    },
    async prefer(preferred) {
      const admin = operator.db('admin');
      const { config } = await admin.command({ replSetGetConfig: 1 });
      for (const member of config.members) member.priority = member.host === preferred ? 1 : 0;
      config.version++;
      await admin.command({ replSetReconfig: config });
    },
  };
}

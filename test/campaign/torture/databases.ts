/** The databases under test, and what can happen to them. */
import { execFileSync, spawnSync } from 'node:child_process';
import { closeSync, openSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import mongodbPlugin, { type mongodb } from '@fastify/mongodb';
import { MongoBinary } from 'mongodb-memory-server-core';
import { serverPort } from '../../kit/port.js';
import { type Program, startCommand } from '../../kit/process.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';
import { PostgresPair } from './postgres-pair.js';
import type { Owner } from './processes.js';
import { FaultyProxy } from './proxy.js';

const { MongoClient } = mongodbPlugin.mongodb;

/** A folder with SQLite files, if possible on a file system of its own that can be full. */
export class SqliteFolder {
  readonly engine = 'sqlite';
  readonly folder: string;
  /** Whether `fill` works: mounting a file system needs the permissions of root. */
  readonly canBeFull: boolean;

  constructor(owner: Owner) {
    this.folder = temporaryFolder(owner);
    const options = ['-t', 'tmpfs', '-o', 'size=64m', 'tmpfs', this.folder];
    this.canBeFull = spawnSync('mount', options, { stdio: 'ignore' }).status === 0;
    if (this.canBeFull) owner.teardown(() => void execFileSync('umount', ['--lazy', this.folder]));
  }

  uri(name: string): string {
    return `sqlite:${join(this.folder, `${name}.db`)}`;
  }

  /** Leaves no free block, until the result is called. */
  fill(): () => void {
    const ballast = join(this.folder, 'ballast');
    const file = openSync(ballast, 'w');
    try {
      for (const size of [1 << 20, 1 << 12]) writeAll(file, Buffer.alloc(size));
    } finally {
      closeSync(file);
    }
    return () => rmSync(ballast);
  }
}

/** Writes until the file system is full. */
function writeAll(file: number, bytes: Buffer): void {
  try {
    for (;;) if (writeSync(file, bytes) < bytes.length) return;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
  }
}

/** Members elect a new primary that soon after they lose theirs. The default is ten seconds. */
const ELECTION_TIMEOUT_MS = 1000;

interface Member {
  /** As the set and its clients know it: the address of its proxy. */
  address: string;
  port: number;
  folder: string;
  proxy: FaultyProxy;
  program: Program;
}

/** A replica set of three. Its members know each other by the addresses of proxies, whose faults affect only the programs. */
export class ReplicaSet {
  readonly engine = 'mongodb';
  readonly #owner: Owner;
  readonly #binary: string;
  #members: Member[] = [];
  #operator: mongodb.MongoClient | undefined;

  private constructor(owner: Owner, binary: string) {
    this.#owner = owner;
    this.#binary = binary;
  }

  static async start(owner: Owner): Promise<ReplicaSet> {
    process.env['MONGOMS_SYSTEM_BINARY_VERSION_CHECK'] ??= 'false';
    const set = new ReplicaSet(owner, await MongoBinary.getPath());
    owner.teardown(() => set.#operator?.close());
    set.#members = await Promise.all(Array.from({ length: 3 }, () => set.#open()));
    await set.#initiate();
    return set;
  }

  uri(name: string): string {
    return `mongodb://${this.#members.map(({ address }) => address).join()}/${name}?replicaSet=torture`;
  }

  get proxies(): FaultyProxy[] {
    return this.#members.map(({ proxy }) => proxy);
  }

  /** The process IDs of the members. */
  get pids(): number[] {
    return this.#members.map(({ program }) => program.pid);
  }

  /** The number of the primary, once there is one. */
  async primary(): Promise<number> {
    let found = -1;
    await waitUntil('a primary', async () => {
      const reply = await this.#hello();
      found = this.#members.findIndex(({ address }) => address === reply?.['primary']);
      return reply?.['isWritablePrimary'] === true && found >= 0;
    });
    return found;
  }

  /** The primary resigns. */
  async stepDown(): Promise<void> {
    await this.#admin.command({ replSetStepDown: 5, force: true }).catch(() => undefined);
  }

  /** Freezes members; the result continues them. */
  freeze(which: (index: number) => boolean): () => void {
    const frozen = this.#members.filter((_, index) => which(index)).map(({ program }) => program);
    for (const program of frozen) program.signal('SIGSTOP');
    const thaw = () => {
      for (const program of frozen) program.signal('SIGCONT');
    };
    this.#owner.teardown(thaw);
    return thaw;
  }

  /** kill -9 of members; the result starts them again. */
  async kill(which: (index: number) => boolean): Promise<() => void> {
    const killed = this.#members.filter((_, index) => which(index));
    await Promise.all(killed.map(({ program }) => program.kill()));
    return () => {
      for (const member of killed) member.program = this.#start(member);
    };
  }

  get #admin(): mongodb.Db {
    this.#operator ??= new MongoClient(this.uri('admin'), {
      serverSelectionTimeoutMS: 1000,
      connectTimeoutMS: 1000,
      heartbeatFrequencyMS: 500,
      appName: OPERATOR,
    });
    return this.#operator.db('admin');
  }

  async #hello(): Promise<mongodb.Document | null> {
    try {
      return await this.#admin.command({ hello: 1 }, { readPreference: 'primary' });
    } catch {
      // A client that cannot connect at first stays closed.
      await this.#operator?.close();
      this.#operator = undefined;
      return null;
    }
  }

  async #open(): Promise<Member> {
    const port = await serverPort();
    const folder = temporaryFolder(this.#owner);
    const proxy = new FaultyProxy(port, isProgram);
    this.#owner.teardown(() => proxy.close());
    const address = `127.0.0.1:${await proxy.listen(await serverPort())}`;
    return { address, port, folder, proxy, program: this.#start({ port, folder }) };
  }

  #start({ port, folder }: Pick<Member, 'port' | 'folder'>): Program {
    const parameters = ['oplogNetworkTimeoutBufferSeconds=1', 'diagnosticDataCollectionEnabled=false'];
    return startCommand(this.#owner, this.#binary, {
      args: [
        ...['--dbpath', folder, '--port', String(port), '--bind_ip', '127.0.0.1', '--replSet', 'torture'],
        ...['--oplogSize', '64', '--wiredTigerCacheSizeGB', '0.25', '--quiet'],
        ...parameters.flatMap((parameter) => ['--setParameter', parameter]),
      ],
    });
  }

  async #initiate(): Promise<void> {
    const [first] = this.#members;
    if (!first) return;
    await Promise.all(this.#members.map(({ program }) => program.printed(/Waiting for connections/)));
    const client = new MongoClient(`mongodb://127.0.0.1:${first.port}`, { directConnection: true });
    await client.db('admin').command({
      replSetInitiate: {
        _id: 'torture',
        members: this.#members.map(({ address }, _id) => ({ _id, host: address })),
        settings: { electionTimeoutMillis: ELECTION_TIMEOUT_MS, heartbeatIntervalMillis: 200 },
      },
    });
    await client.close();
    await this.primary();
  }
}

/** The name under which the campaign itself connects. */
const OPERATOR = 'torture-operator';

/** Whether the first bytes of a connection come from the driver of a program, and not from a member or the campaign. */
const isProgram = (first: Buffer): boolean => first.includes('nodejs') && !first.includes(OPERATOR);

export type Database = SqliteFolder | ReplicaSet | PostgresPair;

/** Starts the database of an engine. */
export const START: Record<Database['engine'], (owner: Owner) => Database | Promise<Database>> = {
  sqlite: (owner) => new SqliteFolder(owner),
  mongodb: (owner) => ReplicaSet.start(owner),
  postgresql: (owner) => PostgresPair.start(owner),
};

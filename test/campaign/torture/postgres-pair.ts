import pg from 'pg';
import { type PostgresServer, startPostgres } from '../../kit/postgres.js';
import type { Owner } from './processes.js';
import { FaultyProxy } from './proxy.js';

const SETTINGS = {
  // Without the standby, nothing is acknowledged.
  synchronous_standby_names: '*',
  max_connections: '40',
  // What the standby has missed while it was frozen.
  wal_keep_size: '1GB',
};

/** How often programs lose the connections that they have got back. */
const EVICTIONS = 10;

/** A primary and its synchronous standby. Programs reach the primary at the address of a proxy, which a failover moves. */
export class PostgresPair {
  readonly engine = 'postgresql';
  readonly #owner: Owner;
  readonly #proxy: FaultyProxy;
  readonly #port: number;
  #primary: PostgresServer;
  #standby: PostgresServer;

  private constructor(
    owner: Owner,
    proxy: FaultyProxy,
    port: number,
    servers: [PostgresServer, PostgresServer],
  ) {
    this.#owner = owner;
    this.#proxy = proxy;
    this.#port = port;
    [this.#primary, this.#standby] = servers;
  }

  static async start(owner: Owner): Promise<PostgresPair> {
    const primary = await startPostgres(SETTINGS);
    owner.teardown(() => primary.stop());
    const standby = await startPostgres(SETTINGS, primary);
    owner.teardown(() => standby.stop());
    const proxy = new FaultyProxy(primary.port);
    owner.teardown(() => proxy.close());
    return new PostgresPair(owner, proxy, await proxy.listen(), [primary, standby]);
  }

  /** With fewer connections than requests at a time. */
  uri(name: string): string {
    return `postgres://postgres@127.0.0.1:${this.#port}/postgres?schema=${name}&connection_limit=3`;
  }

  get proxies(): FaultyProxy[] {
    return [this.#proxy];
  }

  get pids(): readonly number[] {
    return this.#primary.pids;
  }

  /** Freezes one of them; the result continues it. */
  freeze(which: 'primary' | 'standby'): () => void {
    const server = which === 'primary' ? this.#primary : this.#standby;
    server.signal('SIGSTOP');
    const thaw = () => server.signal('SIGCONT');
    this.#owner.teardown(thaw);
    return thaw;
  }

  /** kill -9 of the primary, or of both; the result starts them again. */
  async kill(which: 'primary' | 'both'): Promise<() => Promise<void>> {
    const servers = which === 'both' ? [this.#primary, this.#standby] : [this.#primary];
    const starts = await Promise.all(servers.map((server) => server.crash()));
    return async () => void (await Promise.all(starts.map((start) => start())));
  }

  /** kill -9 of the primary; the standby takes its place, and it the standby's. */
  async failOver(): Promise<void> {
    const [old, next] = [this.#primary, this.#standby];
    await old.crash();
    await next.run('SELECT pg_promote()');
    this.#proxy.target = next.port;
    await old.follow(next);
    [this.#primary, this.#standby] = [next, old];
  }

  /** Takes all connections of the primary, also those of the programs; the result releases them. */
  async exhaust(): Promise<() => Promise<void>> {
    const clients: pg.Client[] = [];
    const take = async (): Promise<boolean> => {
      const client = new pg.Client(this.#primary.uri);
      client.on('error', () => {});
      const isTaken = await client.connect().then(
        () => true,
        () => false,
      );
      if (isTaken) clients.push(client);
      return isTaken;
    };
    const evict =
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'saas-backend'";
    for (let eviction = 0; eviction < EVICTIONS; eviction++) {
      while (await take());
      await clients[0]?.query(evict);
    }
    return async () => void (await Promise.all(clients.map((client) => client.end())));
  }

  /** Locks a table, until the result is called. */
  async lock(table: string): Promise<() => Promise<void>> {
    const client = new pg.Client(this.#primary.uri);
    await client.connect();
    await client.query(`BEGIN; LOCK TABLE ${table}`);
    return () => client.end();
  }
}

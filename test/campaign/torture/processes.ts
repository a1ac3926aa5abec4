/** The compiled programs under test, each process with a proxy in front of it. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Test } from 'tap';
import { SECRETS } from '../../kit/app.js';
import { ADMIN_TOKEN, SEED } from '../../kit/idp.js';
import { serverPort } from '../../kit/port.js';
import { childrenOf, compiled, type Program, sendSignal, startProgram } from '../../kit/process.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';
import { FaultyProxy } from './proxy.js';

export type Product = 'saas-backend' | 'idp';

/** What releases resources in the end: a test, or a round of a campaign. */
export type Owner = Pick<Test, 'teardown'>;

export interface FleetOptions {
  product: Product;
  databaseUri: string;
  mailUrl: string;
  processes: number;
  /** One program with that many workers instead of independent processes. */
  isCluster: boolean;
}

const issuerOf: Record<Product, string> = {
  'saas-backend': 'http://app.example.test',
  idp: 'http://id.example.test',
};

function environment({ product, databaseUri, mailUrl }: FleetOptions): Record<string, string> {
  if (product === 'idp')
    return {
      IDP_DATABASE_URI: databaseUri,
      IDP_PUBLIC_URL: issuerOf.idp,
      IDP_ED25519_SEED: SEED,
      IDP_ADMIN_TOKEN: ADMIN_TOKEN,
    };
  return {
    DATABASE_URI: databaseUri,
    PUBLIC_URL: issuerOf['saas-backend'],
    JWT_ACCESS_SECRET: SECRETS.jwtAccessSecret,
    JWT_REFRESH_SECRET: SECRETS.jwtRefreshSecret,
    PAYMENT_WEBHOOK_SECRET: SECRETS.paymentWebhookSecret,
    ADMIN_USERNAME: SECRETS.adminUsername,
    ADMIN_PASSWORD: SECRETS.adminPassword,
    EMAIL_SMTP_URL: mailUrl,
  };
}

/** A listening address: one process, or all workers of a program. */
interface Slot {
  port: number;
  program: Program;
  clockFile: string;
  proxy: FaultyProxy;
  /** The address of the proxy. */
  url: string;
}

export class Fleet {
  readonly product: Product;
  readonly #options: FleetOptions;
  readonly #owner: Owner;
  readonly #folder: string;
  #slots: Slot[] = [];

  private constructor(owner: Owner, options: FleetOptions) {
    this.product = options.product;
    this.#options = options;
    this.#owner = owner;
    this.#folder = temporaryFolder(owner);
  }

  static async start(owner: Owner, options: FleetOptions): Promise<Fleet> {
    const fleet = new Fleet(owner, options);
    const count = options.isCluster ? 1 : options.processes;
    // One after the other: the first process creates the database.
    for (let number = 0; number < count; number++) fleet.#slots.push(await fleet.#open(number));
    return fleet;
  }

  get urls(): string[] {
    return this.#slots.map(({ url }) => url);
  }

  get proxies(): FaultyProxy[] {
    return this.#slots.map(({ proxy }) => proxy);
  }

  /** The processes that answer requests. */
  get pids(): number[] {
    const pids = this.#slots.map(({ program }) => program.pid);
    return this.#options.isCluster ? pids.flatMap(childrenOf) : pids;
  }

  /** kill -9 of one process, which is replaced at once. */
  async kill(index: number): Promise<void> {
    if (this.#options.isCluster) {
      const pids = this.pids;
      process.kill(pids[index % pids.length] as number, 'SIGKILL');
      await waitUntil('a new worker', () => this.pids.length === this.#options.processes);
      return;
    }
    const slot = this.#slots[index % this.#slots.length] as Slot;
    await slot.program.kill();
    slot.program = await this.#start(slot);
  }

  /** kill -9 of everything; then the same number of processes is started. */
  async killAll(): Promise<void> {
    await Promise.all(this.#slots.map(({ program }) => program.kill()));
    for (const slot of this.#slots) slot.program = await this.#start(slot);
  }

  /** SIGSTOP; the result continues the process. */
  freeze(index: number): () => void {
    const pid = this.pids[index % this.pids.length] as number;
    process.kill(pid, 'SIGSTOP');
    const thaw = () => sendSignal(pid, 'SIGCONT');
    this.#owner.teardown(thaw);
    return thaw;
  }

  /** Sets the clock of one address, or of all. */
  shiftClock(milliseconds: number, index?: number): void {
    const slots = index === undefined ? this.#slots : [this.#slots[index % this.#slots.length] as Slot];
    for (const { clockFile } of slots) writeFileSync(clockFile, String(milliseconds));
  }

  /** What the processes printed. */
  get log(): string[] {
    return this.#slots.flatMap(({ program }) => [...program.lines]);
  }

  async #open(number: number): Promise<Slot> {
    const port = await serverPort();
    const clockFile = join(this.#folder, `clock-${number}`);
    writeFileSync(clockFile, '0');
    const proxy = new FaultyProxy(port);
    this.#owner.teardown(() => proxy.close());
    const url = `http://127.0.0.1:${await proxy.listen()}`;
    return { port, clockFile, proxy, url, program: await this.#start({ port, clockFile }) };
  }

  async #start({ port, clockFile }: Pick<Slot, 'port' | 'clockFile'>): Promise<Program> {
    const { product, isCluster, processes } = this.#options;
    const workers = isCluster ? ['--workers', String(processes)] : [];
    const program = startProgram(this.#owner, compiled(`bin/${product}.js`), {
      args: ['serve', '-p', String(port), '--log-level', 'error', '--json', ...workers],
      cwd: this.#folder,
      env: {
        ...environment(this.#options),
        NODE_OPTIONS: `--import=${compiled('test/campaign/torture/shift-clock.js')} --disable-warning=ExperimentalWarning`,
        TORTURE_CLOCK: clockFile,
      },
    });
    await program.printed(/^\{"program".*/);
    return program;
  }
}

/** What happens to the programs and to their database during a campaign. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Dice } from '../../kit/stripe-simulator.js';
import type { Database, ReplicaSet, SqliteFolder } from './databases.js';
import type { PostgresPair } from './postgres-pair.js';
import type { Fleet } from './processes.js';
import type { FaultyProxy } from './proxy.js';
import type { World } from './world.js';

export interface Setting {
  fleets: Fleet[];
  database: Database;
  dice: Dice;
  world: World;
}

export interface TortureEvent {
  name: string;
  /** Happens while no request is in flight. */
  isQuiet?: boolean;
  /** Why it cannot happen here. */
  missing?(setting: Setting): string | undefined;
  run(setting: Setting): Promise<void>;
}

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

/** How far the clocks of two processes may differ, so that the 30 seconds of a repeated refresh are enough. */
const MAX_SKEW_MS = 8000;

const programEvents: TortureEvent[] = [
  {
    name: 'kill -9 of one process',
    run: async ({ fleets, dice }) => {
      await Promise.all(fleets.map((fleet) => fleet.kill(dice.whole(4))));
    },
  },
  {
    name: 'kill -9 of all processes',
    run: async ({ fleets }) => {
      await Promise.all(fleets.map((fleet) => fleet.killAll()));
    },
  },
  {
    name: 'one process frozen (SIGSTOP)',
    async run({ fleets, dice }) {
      const thaws = fleets.map((fleet) => fleet.freeze(dice.whole(4)));
      await sleep(1000 + dice.whole(2000));
      for (const thaw of thaws) thaw();
    },
  },
  {
    name: 'clock of one process off by seconds',
    async run({ fleets, dice }) {
      const skew = (dice.happens(0.5) ? 1 : -1) * (1000 + dice.whole(MAX_SKEW_MS - 1000));
      for (const fleet of fleets) fleet.shiftClock(skew, dice.whole(4));
      await sleep(2500);
      for (const fleet of fleets) fleet.shiftClock(0);
    },
  },
  {
    name: 'all clocks set forward or back',
    isQuiet: true,
    async run({ fleets, dice, world }) {
      const jump = (dice.happens(0.5) ? 1 : -1) * dice.one([10 * MINUTE, HOUR, 26 * HOUR]);
      const setAll = async (shift: number) => {
        const resume = await world.pause();
        for (const fleet of fleets) fleet.shiftClock(shift);
        // Longer than the programs take to notice.
        await sleep(100);
        world.clockJumps++;
        resume();
      };
      await setAll(jump);
      await sleep(2500);
      await setAll(0);
    },
  },
];

/** Faults between two programs, at `proxies`. */
function networkEvents(where: string, proxiesOf: (setting: Setting) => FaultyProxy[]): TortureEvent[] {
  const during = async (setting: Setting, fault: FaultyProxy['fault'], ms: number) => {
    const proxies = proxiesOf(setting);
    for (const proxy of proxies) proxy.fault = fault;
    await sleep(ms);
    for (const proxy of proxies) proxy.fault = null;
  };
  return [
    {
      name: `${where}: packets delayed`,
      run: (setting) => during(setting, { kind: 'delay', ms: 50 + setting.dice.whole(250) }, 2500),
    },
    {
      name: `${where}: half-open connections`,
      run: (setting) => during(setting, { kind: 'half-open' }, 1500 + setting.dice.whole(1500)),
    },
    {
      name: `${where}: resets in the middle of an answer`,
      run: (setting) => during(setting, { kind: 'reset', every: 3 + setting.dice.whole(5) }, 2500),
    },
  ];
}

const clientNetwork = networkEvents('client network', ({ fleets }) =>
  fleets.flatMap(({ proxies }) => proxies),
);

const sqliteEvents: TortureEvent[] = [
  {
    name: 'disk full',
    missing: ({ database }) =>
      (database as SqliteFolder).canBeFull ? undefined : 'mounting a small file system requires root',
    async run({ database, world }) {
      const free = (database as SqliteFolder).fill();
      // Until both programs refuse writes: the logs of SQLite still have space of their own.
      const isRefused = refusals(world);
      for (let waited = 0; waited < 10_000 && !isRefused(); waited += 100) await sleep(100);
      await sleep(1500);
      free();
    },
  },
  slowDisk(({ fleets }) => fleets.flatMap(({ pids }) => pids)),
];

const mongodbEvents: TortureEvent[] = [
  { name: 'primary steps down', run: ({ database }) => (database as ReplicaSet).stepDown() },
  {
    name: 'kill -9 of the primary',
    async run({ database }) {
      const set = database as ReplicaSet;
      const primary = await set.primary();
      const restart = await set.kill((index) => index === primary);
      await sleep(1000);
      restart();
    },
  },
  {
    name: 'primary frozen (SIGSTOP)',
    async run({ database, dice }) {
      const set = database as ReplicaSet;
      const primary = await set.primary();
      const thaw = set.freeze((index) => index === primary);
      await sleep(1500 + dice.whole(4000));
      thaw();
    },
  },
  {
    name: 'majority lost (SIGSTOP)',
    async run({ database, dice }) {
      const set = database as ReplicaSet;
      const primary = await set.primary();
      const thaw = set.freeze((index) => index !== primary);
      await sleep(2000 + dice.whole(3000));
      thaw();
    },
  },
  {
    name: 'primary alone, then killed',
    async run({ database }) {
      const set = database as ReplicaSet;
      const primary = await set.primary();
      const thaw = set.freeze((index) => index !== primary);
      await sleep(700);
      const restart = await set.kill((index) => index === primary);
      thaw();
      await set.primary();
      await sleep(500);
      restart();
    },
  },
  {
    name: 'kill -9 of all members',
    async run({ database }) {
      (await (database as ReplicaSet).kill(() => true))();
    },
  },
  ...networkEvents('database network', ({ database }) => (database as ReplicaSet).proxies),
  slowDisk(({ database }) => (database as ReplicaSet).pids),
];

const pairOf = ({ database }: Setting) => database as PostgresPair;

const postgresqlEvents: TortureEvent[] = [
  {
    name: 'kill -9 of the server',
    async run(setting) {
      const restart = await pairOf(setting).kill('primary');
      await sleep(1000);
      await restart();
    },
  },
  {
    name: 'kill -9 of the server and its standby',
    run: async (setting) => (await pairOf(setting).kill('both'))(),
  },
  {
    name: 'server frozen (SIGSTOP)',
    async run(setting) {
      const thaw = pairOf(setting).freeze('primary');
      await sleep(1500 + setting.dice.whole(4000));
      thaw();
    },
  },
  {
    name: 'standby frozen (SIGSTOP)',
    async run(setting) {
      const thaw = pairOf(setting).freeze('standby');
      await sleep(1500 + setting.dice.whole(6000));
      thaw();
    },
  },
  { name: 'failover', run: (setting) => pairOf(setting).failOver() },
  {
    name: 'failover of a frozen server',
    async run(setting) {
      pairOf(setting).freeze('primary');
      await sleep(1500 + setting.dice.whole(4000));
      await pairOf(setting).failOver();
    },
  },
  {
    name: 'server alone, then failover',
    async run(setting) {
      const thaw = pairOf(setting).freeze('standby');
      await sleep(700);
      await pairOf(setting).kill('primary');
      thaw();
      await pairOf(setting).failOver();
    },
  },
  {
    name: 'connections exhausted',
    async run(setting) {
      const release = await pairOf(setting).exhaust();
      await sleep(2500);
      await release();
    },
  },
  {
    name: 'tables locked',
    async run(setting) {
      const unlocks = await Promise.all(
        ['saas.sessions', 'idp.grants'].map((table) => pairOf(setting).lock(table)),
      );
      await sleep(1500 + setting.dice.whole(4000));
      for (const unlock of unlocks) await unlock();
    },
  },
  ...networkEvents('database network', (setting) => pairOf(setting).proxies),
  slowDisk((setting) => pairOf(setting).pids),
];

/** Every sync of these processes takes longer: strace delays the system calls. */
function slowDisk(pidsOf: (setting: Setting) => readonly number[]): TortureEvent {
  return {
    name: 'slow disk',
    missing: () => (canTrace() ? undefined : 'strace is not installed or may not attach'),
    async run(setting) {
      const ms = 50 + setting.dice.whole(150);
      const calls = 'fsync,fdatasync';
      const tracers = pidsOf(setting).map((pid) => {
        const inject = `inject=${calls}:delay_enter=${ms * 1000}`;
        return spawn('strace', ['-f', '-qq', '-p', String(pid), '-e', `trace=${calls}`, '-e', inject], {
          stdio: 'ignore',
        });
      });
      const ends = tracers.map((tracer) => once(tracer, 'exit'));
      await sleep(3000);
      for (const tracer of tracers) tracer.kill('SIGINT');
      await Promise.all(ends);
    },
  };
}

let traces: boolean | undefined;

function canTrace(): boolean {
  if (traces === undefined) {
    const child = spawn('sleep', ['60'], { stdio: 'ignore' });
    const attach = ['--signal=INT', '0.5', 'strace', '-qq', '-p', String(child.pid)];
    // `timeout` ends a tracer that has attached, and reports that as 124.
    traces = spawnSync('timeout', attach, { stdio: 'ignore' }).status === 124;
    child.kill('SIGKILL');
  }
  return traces;
}

/** Whether both programs have refused a write since this call. */
function refusals({ history }: World): () => boolean {
  const before = history.operations.length;
  return () => {
    const since = history.operations.slice(before);
    const refused = since.filter(({ kind, detail }) => kind === 'write' && detail.startsWith('503'));
    return new Set(refused.map(({ target }) => target.split('#')[0])).size === 2;
  };
}

const DATABASE_EVENTS: Record<Database['engine'], TortureEvent[]> = {
  sqlite: sqliteEvents,
  mongodb: mongodbEvents,
  postgresql: postgresqlEvents,
};

/** The events that concern an engine. */
export const eventsFor = (engine: Database['engine']): TortureEvent[] => [
  ...programEvents,
  ...clientNetwork,
  ...DATABASE_EVENTS[engine],
];

export const EVENT_NAMES: string[] = [
  ...new Set(
    [...programEvents, ...clientNetwork, ...Object.values(DATABASE_EVENTS).flat()].map(({ name }) => name),
  ),
];

/** One round of a campaign: a configuration, every event that concerns it, and the judgement of the history. */
import { setTimeout as sleep } from 'node:timers/promises';
import { mailSink } from '../../kit/mail.js';
import { diceOf } from '../../kit/stripe-simulator.js';
import { waitUntil } from '../../kit/wait.js';
import { check, type Violation } from './checker.js';
import { type Database, START } from './databases.js';
import { eventsFor, type Setting, type TortureEvent } from './events.js';
import { type EventFigures, figuresOf } from './figures.js';
import { History } from './history.js';
import { codeLane, familyLane, mintLane, stateLanes } from './idp-clients.js';
import { Fleet, type Owner } from './processes.js';
import {
  type Account,
  profileLanes,
  refreshLane,
  registrationLane,
  resetLane,
  signIn,
} from './saas-clients.js';
import { webhookLane } from './webhook-client.js';
import { World } from './world.js';

export interface Configuration {
  engine: Database['engine'];
  processes: number;
  isCluster: boolean;
}

/** The configurations of the rounds of a campaign, in this order. */
export const CONFIGURATIONS: readonly Configuration[] = [
  { engine: 'sqlite', processes: 2, isCluster: false },
  { engine: 'mongodb', processes: 2, isCluster: false },
  { engine: 'postgresql', processes: 2, isCluster: false },
  { engine: 'sqlite', processes: 4, isCluster: false },
  { engine: 'mongodb', processes: 2, isCluster: true },
  { engine: 'postgresql', processes: 4, isCluster: false },
  { engine: 'sqlite', processes: 2, isCluster: true },
  { engine: 'mongodb', processes: 4, isCluster: false },
  { engine: 'postgresql', processes: 2, isCluster: true },
  { engine: 'sqlite', processes: 1, isCluster: false },
  { engine: 'mongodb', processes: 1, isCluster: false },
  { engine: 'postgresql', processes: 1, isCluster: false },
];

export const nameOf = ({ engine, processes, isCluster }: Configuration): string =>
  `${engine} ${processes} ${isCluster ? 'workers' : processes === 1 ? 'process' : 'processes'}`;

export interface RoundOptions {
  configuration: Configuration;
  seed: number;
  /** Only events whose name contains this text. */
  only: string;
  /** Called when an event begins, with its number. */
  onBegin(name: string, number: number, total: number): void;
  /** Called when everything works again. */
  onEnd(figures: EventFigures): void;
}

export interface RoundResult {
  configuration: string;
  seed: number;
  operations: number;
  acknowledged: number;
  seconds: number;
  figures: EventFigures[];
  /** The events that could not happen, with the reason. */
  missing: string[];
  violations: Violation[];
}

/** Longer than an e-mail is postponed after two failed attempts. */
const MAIL_RETRY_MS = 300_000;

/** Between two events, clients are undisturbed for that long. */
const PAUSE_MS = 500;

/** What ends the current round. */
let teardowns: (() => unknown)[] = [];

export async function runRound(options: RoundOptions): Promise<RoundResult> {
  const owner: Owner = { teardown: (handler) => void teardowns.push(handler as () => unknown) };
  try {
    return await runOwned(owner, options);
  } finally {
    await endRound();
  }
}

/** Ends all processes of the current round and removes its files, in the middle of it if necessary. */
export async function endRound(): Promise<void> {
  const handlers = teardowns.reverse();
  teardowns = [];
  for (const handler of handlers) await handler();
}

async function runOwned(owner: Owner, options: RoundOptions): Promise<RoundResult> {
  const { configuration, seed } = options;
  const dice = diceOf(seed);
  const database = await START[configuration.engine](owner);
  const mails = await mailSink(owner);
  const common = { ...configuration, mailUrl: mails.url };
  const [saas, idp] = await Promise.all([
    Fleet.start(owner, { ...common, product: 'saas-backend', databaseUri: database.uri('saas') }),
    Fleet.start(owner, { ...common, product: 'idp', databaseUri: database.uri('idp') }),
  ]);
  const history = new History(() => performance.now());
  // Clients have their own dice, because the order in which they roll them depends on the time.
  const world = new World({ history, dice: diceOf(seed + 1), mails, fleets: { 'saas-backend': saas, idp } });
  owner.teardown(() => world.close());
  const setting: Setting = { fleets: [saas, idp], database, dice, world };
  const clients = await startClients(world);
  const figures: EventFigures[] = [];
  const missing: string[] = [];
  const events = dice
    .shuffled(eventsFor(configuration.engine))
    .filter(({ name }) => name.includes(options.only));
  for (const [index, event] of events.entries()) {
    const reason = event.missing?.(setting);
    if (reason !== undefined) {
      missing.push(`${event.name}: ${reason}`);
      continue;
    }
    options.onBegin(event.name, index + 1, events.length);
    const window = await happen(event, setting);
    const one = {
      event: event.name,
      configuration: nameOf(configuration),
      ...figuresOf(history.operations, { ...window, isQuiet: event.isQuiet === true }),
    };
    figures.push(one);
    options.onEnd(one);
  }
  await clients.end();
  return {
    configuration: nameOf(configuration),
    seed,
    operations: history.operations.length,
    acknowledged: history.operations.filter(({ outcome }) => outcome === 'ok').length,
    seconds: history.now() / 1000,
    figures,
    missing,
    violations: check(history.operations),
  };
}

/** Returns when the event began, and when every process was ready again. */
async function happen(event: TortureEvent, setting: Setting): Promise<{ start: number; end: number }> {
  const { world, fleets } = setting;
  await sleep(PAUSE_MS);
  const start = world.history.now();
  if (!event.isQuiet) world.isDisturbed = true;
  await event.run(setting);
  await Promise.all(
    fleets.flatMap(({ urls }) => urls.map((url) => waitUntil(`${url} is ready`, () => isReady(url)))),
  );
  world.isDisturbed = false;
  return { start, end: world.history.now() };
}

async function isReady(url: string): Promise<boolean> {
  try {
    const { status } = await fetch(`${url}/ready`, { signal: AbortSignal.timeout(5000) });
    return status === 200;
  } catch {
    return false;
  }
}

async function startClients(world: World): Promise<{ end(): Promise<void> }> {
  const accounts: Account[] = [];
  const webhooks = await Promise.all([webhookLane(world), webhookLane(world)]);
  const others = await Promise.all(
    [refreshLane, refreshLane, familyLane, familyLane, codeLane].map((prepare) => prepare(world)),
  );
  const lanes = [
    ...(await profileLanes(world, 2, 2)),
    ...(await stateLanes(world, 2)),
    ...[...webhooks, ...others].map(({ running }) => running),
    mintLane(world),
    registrationLane(world, accounts),
    resetLane(world),
  ];
  return {
    async end() {
      world.isDisturbed = false;
      await sleep(PAUSE_MS);
      world.isOver = true;
      await Promise.all(lanes);
      for (const { checkSubscription } of webhooks) await checkSubscription();
      for (const account of accounts) await signIn(world, account);
      // An e-mail whose sender was killed is due again after a minute, and programs look for e-mails when they start.
      const { 'saas-backend': saas } = world.fleets;
      saas.shiftClock(MAIL_RETRY_MS);
      await saas.killAll();
      for (const { checkMails } of webhooks) await checkMails();
    },
  };
}

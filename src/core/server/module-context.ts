import type { FastifyInstance } from 'fastify';
import { type Clock, HOUR, SECOND, systemClock } from '../kernel/clock.js';
import { type Random, systemRandom } from '../kernel/secrets.js';
import type { AuditDependencies, AuditLog } from '../ops/audit.js';
import { createBackgroundTasks } from '../ops/background-tasks.js';
import { createCommit } from '../ops/commit.js';
import { createJobs, type JobLog } from '../ops/jobs.js';
import type { Metrics } from '../ops/metrics.js';
import type { Telemetry } from '../ops/telemetry.js';
import { createUnknownWrites } from '../ops/unknown-writes.js';
import type { HashingCost } from '../passwords/argon2.js';
import { createPasswordPolicy } from '../passwords/common.js';
import { createPasswords, hashingLoad } from '../passwords/hasher.js';
import type { Store } from '../storage/collection.js';
import type { Rates } from '../throttle/limits.js';
import { createThrottle } from '../throttle/throttle.js';
import { watchClock } from './clock-check.js';
import { createAccountData, createSignInMethods } from './contributions.js';

/** The services that every module uses. A server or a command creates it once. */
export type ModuleContext<A extends AuditLog = AuditLog> = ReturnType<typeof createModuleContext<A>>;

export interface ModuleContextOptions<A extends AuditLog> {
  production: boolean;
  clock: Clock;
  random: Random;
  log: JobLog;
  createAudit: (store: Store, dependencies: AuditDependencies) => A;
  /** Key of the HMACs that the throttle stores. */
  throttleSecret: string;
  limits?: boolean | undefined;
  /** The numbers of configurable rate limits. */
  rates?: Rates | undefined;
  /** Whether audit records that could not be written are written later. Default: true. */
  retryAudit?: boolean;
  hashing?: HashingCost | undefined;
  metrics?: Metrics | undefined;
  telemetry?: Telemetry | undefined;
}

export function createModuleContext<A extends AuditLog>(store: Store, options: ModuleContextOptions<A>) {
  const { production, clock, random, log, metrics, telemetry, retryAudit = true } = options;
  const unknownWrites = createUnknownWrites({ clock, log });
  if (metrics) measureHashing(metrics);
  const audit = options.createAudit(store, { clock, random, log, ...(retryAudit && { unknownWrites }) });
  return {
    store,
    commit: createCommit(store),
    clock,
    random,
    log,
    audit,
    throttle: createThrottle(store, { ...options, audit, secret: options.throttleSecret }),
    passwords: createPasswords(random, options.hashing),
    passwordPolicy: createPasswordPolicy(production, (message) => log.warn(message)),
    /** Modules add their jobs, which run in a server only. */
    jobs: createJobs(store, { clock, random, log, metrics }),
    /** Modules add what they store about an account, for its export and its deletion. */
    accountData: createAccountData(),
    /** Modules add what gives access to an account. */
    signInMethods: createSignInMethods(),
    backgroundTasks: createBackgroundTasks(log),
    /** Writes that failed without a known outcome. */
    unknownWrites,
    /** Absent if metrics and telemetry are disabled. */
    ...(metrics && { metrics }),
    ...(telemetry && { telemetry }),
  };
}

function measureHashing(metrics: Metrics): void {
  metrics.gauge({ name: 'password_hashes_running', help: 'Password hashes that are being computed.' }, () => [
    { labels: {}, value: hashingLoad().running },
  ]);
  metrics.gauge(
    { name: 'password_hashes_waiting', help: 'Password hashes that wait for a processor.' },
    () => [{ labels: {}, value: hashingLoad().waiting }],
  );
}

/** Starts the jobs when the server is ready, unless a scheduler runs them, and stops them when it closes. The store is closed by the product. */
export function followLifecycle(
  fastify: FastifyInstance,
  { store, clock, log, audit, throttle, passwords, jobs, backgroundTasks, unknownWrites }: ModuleContext,
  { auditRetentionDays, cronSecret }: { auditRetentionDays: number; cronSecret?: string | undefined },
): void {
  jobs.add('throttle-purge', {
    everySeconds: HOUR / SECOND,
    run: ({ signal }) => throttle.purge(signal),
    countBacklog: throttle.countExpired,
  });
  jobs.add('audit-purge', {
    everySeconds: HOUR / SECOND,
    run: ({ signal }) => audit.purge(auditRetentionDays, signal),
    countBacklog: (limit) => audit.countOutdated(auditRetentionDays, limit),
  });
  if (cronSecret === undefined) fastify.addHook('onReady', async () => jobs.start());
  fastify.addHook('onListen', async () => passwords.prepare());
  let stopWatching: (() => void) | undefined;
  fastify.addHook('onReady', async () => {
    stopWatching = watchClock(store, { clock, log });
  });
  // No job starts while the last requests are processed; running ones are awaited afterwards.
  fastify.addHook('preClose', async () => void jobs.stop());
  fastify.addHook('onClose', async () => {
    stopWatching?.();
    await backgroundTasks.settled();
    await jobs.stop();
    await audit.close();
    await unknownWrites.close();
  });
}

/** The context of a command: the services of a server without limits. `warn` gets log messages as sentences. */
export function createCommandContext<A extends AuditLog>(
  store: Store,
  {
    warn,
    ...options
  }: { warn: (message: string) => void } & Pick<ModuleContextOptions<A>, 'production' | 'createAudit'>,
): ModuleContext<A> {
  return createModuleContext(store, {
    ...options,
    clock: systemClock,
    random: systemRandom,
    log: commandLog(warn),
    limits: false,
    // A command ends before the store responds again.
    retryAudit: false,
    // Without limits, the throttle stores nothing.
    throttleSecret: '',
  });
}

function commandLog(warn: (message: string) => void): JobLog {
  const write = (...[details, message]: unknown[]) => {
    const text = typeof details === 'string' ? details : String(message);
    const named = Object.values(details ?? {}).filter((detail) => typeof detail === 'string');
    const about = typeof details === 'object' && named.length > 0 ? ` (${named.join(', ')})` : '';
    warn(`${text.charAt(0).toUpperCase()}${text.slice(1).replace(/\.$/, '')}${about}.`);
  };
  return { info: () => undefined, warn: write, error: write };
}

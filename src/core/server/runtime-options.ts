import type { Clock } from '../kernel/clock.js';
import type { Random } from '../kernel/secrets.js';
import type { MetricsPeers } from '../ops/metrics.js';
import type { HashingCost } from '../passwords/argon2.js';
import type { HostMongo, HostPostgres } from '../storage/host-database.js';

/** Options of both plugins that have no environment variable. */
export interface RuntimeOptions {
  /** Replaces the environment; `false` ignores it. */
  env?: Record<string, string | undefined> | false;
  /** The source of the time; tests replace it. Default: that of the system. */
  clock?: Clock;
  /** The source of randomness; tests replace it. Default: that of the system. */
  random?: Random;
  /** Cost of password hashes. Lower it in tests only. */
  hashing?: HashingCost;
  /**
   * Rate limits. By default, loopback addresses are exempt outside production; `true` limits them as well; `false` turns
   * all limits off, including those on wrong passwords, and is for measurements only.
   */
  limits?: boolean;
  /**
   * The host's `fastify.mongo`, instead of `databaseUri`. It is never closed, and collection names begin with `saas_` or
   * `idp_`.
   */
  mongo?: HostMongo;
  /**
   * The host's `fastify.pg`, or `{ pool, schema }` with a `Pool` of `pg`, instead of `databaseUri`. It is never closed. The
   * default of the schema is `saas` or `idp`.
   */
  pg?: HostPostgres;
  /** The other processes that serve the same port, if `/metrics` responds with the sums over all of them. */
  metricsPeers?: MetricsPeers;
  /**
   * For a plugin: whether the host's @fastify/swagger, registered before it, describes the routes of this plugin, too.
   * Default `false`.
   */
  openapi?: boolean;
}

import type { Clock } from '../kernel/clock.js';
import type { Random } from '../kernel/secrets.js';
import type { HashingCost } from '../passwords/argon2.js';
import type { HostMongo } from '../storage/host-database.js';

/** What code passes to either plugin beside the configuration: no environment variable stands for these. */
export interface RuntimeOptions {
  /** Replaces the environment; `false` ignores it. */
  env?: Record<string, string | undefined> | false;
  clock?: Clock;
  random?: Random;
  /** Cost of password hashes. Lower it in tests only. */
  hashing?: HashingCost;
  /**
   * Rate limits. Unset, request rates are not limited on this machine outside production; `true` limits them there,
   * too; `false` turns every limit off, even that on wrong passwords, and is for measurements.
   */
  limits?: boolean;
  /**
   * The host's own `fastify.mongo`, instead of `databaseUri`: used, never closed. Our collections begin with `saas_`
   * or `idp_`.
   */
  mongo?: HostMongo;
}

/** The runtime options that have no default. */
export type OptionalRuntime = Pick<RuntimeOptions, 'hashing' | 'limits' | 'mongo'>;

/** The pool of a PostgreSQL store: its own, or that of the host. */
import type { Pool } from 'pg';
import { CALL_TIMEOUT_MS } from '../calls.js';
import type { HostPool } from '../host-database.js';
import { settingsOf } from './source.js';

/** A pool, the schema, and what ends the pool if it is not the host's. */
export interface Source {
  pool: Pool;
  schema: string;
  release(): Promise<void>;
}

/** Longer than the pauses between requests of a small installation: each connection costs several round trips. */
const IDLE_TIMEOUT_MS = 60_000;

/** Creates the pool of a URI, or uses the host's. Connects later. */
export async function openSource(source: string | HostPool): Promise<Source> {
  if (typeof source !== 'string')
    return { pool: source.pool as Pool, schema: source.schema, release: async () => {} };
  const { schema, connections } = settingsOf(source);
  const { default: pg } = await import('pg');
  const uri = new URL(source);
  const { searchParams } = uri;
  // The driver checks the certificate with these words, too, and warns that a later version will not.
  if (
    !searchParams.has('uselibpqcompat') &&
    /^(?:prefer|require|verify-ca)$/.test(searchParams.get('sslmode') ?? '')
  )
    searchParams.set('sslmode', 'verify-full');
  const pool = new pg.Pool({
    connectionString: uri.href,
    max: connections,
    connectionTimeoutMillis: CALL_TIMEOUT_MS - 500,
    idleTimeoutMillis: IDLE_TIMEOUT_MS,
    keepAlive: true,
    fallback_application_name: 'saas-backend',
  });
  // The pool has removed the unused connection that was lost; the next call opens another one.
  pool.on('error', () => {});
  return { pool, schema, release: () => pool.end() };
}

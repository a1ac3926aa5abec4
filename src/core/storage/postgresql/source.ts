/** Where a PostgreSQL store is: a URI, or a pool and a schema of the host. */
import type { Pool } from 'pg';
import { CALL_TIMEOUT_MS } from '../calls.js';

/** The pool of a host, and the schema of this store there. */
export interface HostPool {
  pool: Pool;
  schema: string;
}

/** A pool, the schema, and what ends the pool if it is not the host's. */
export interface Source extends HostPool {
  release(): Promise<void>;
}

const URI = /^postgres(?:ql)?:\/\/[^/?#\s]*\/[^/?#\s]+/;

/** What the URI may contain beside the parameters of the driver: the schema, and the largest number of connections. */
const SCHEMA = 'schema';
const CONNECTIONS = 'connection_limit';
const DEFAULT_SCHEMA = 'public';
const DEFAULT_CONNECTIONS = 10;
const MAX_CONNECTIONS = 1000;

/** Longer than the pauses between requests of a small installation: each connection costs several round trips. */
const IDLE_TIMEOUT_MS = 60_000;

/** Describes why a URI is invalid, without the URI; null if it is valid. */
export function postgresqlUriProblem(uri: string): string | null {
  const parsed = URI.test(uri) && URL.canParse(uri) ? new URL(uri) : null;
  if (!parsed || (parsed.hostname === '' && !parsed.searchParams.has('host')))
    return 'a PostgreSQL URI names its host and its database: postgres://host:5432/name';
  const schema = parsed.searchParams.get(SCHEMA);
  if (schema !== null && !isSchemaName(schema)) return `its schema ${SCHEMA_RULE}`;
  const connections = parsed.searchParams.get(CONNECTIONS);
  if (connections !== null && !(/^\d{1,4}$/.test(connections) && isCount(Number(connections))))
    return `its connection_limit is a number from 1 to ${MAX_CONNECTIONS}`;
  return null;
}

export const isSchemaName = (name: string): boolean => /^[a-z_][a-z0-9_]{0,62}$/.test(name);
export const SCHEMA_RULE = 'consists of lower-case letters, digits and _, and does not begin with a digit';

const isCount = (count: number): boolean => count >= 1 && count <= MAX_CONNECTIONS;

/** The server, the database and the schema of a valid URI. */
export function postgresqlPlace(uri: string): string {
  const { hostname, port, pathname, searchParams } = new URL(uri);
  const [host, service] = [searchParams.get('host') ?? hostname, searchParams.get('port') ?? port];
  return `postgres://${host}:${service || 5432}${pathname}/${searchParams.get(SCHEMA) ?? DEFAULT_SCHEMA}`;
}

/** Adds the schema to a PostgreSQL URI that names none. Others remain as they are. */
export function withSchema(uri: string, schema: string): string {
  if (postgresqlUriProblem(uri) !== null || new URL(uri).searchParams.has(SCHEMA)) return uri;
  return `${uri}${uri.includes('?') ? '&' : '?'}${SCHEMA}=${schema}`;
}

/** Creates the pool of a URI, or uses the host's. Connects later. */
export async function openSource(source: string | HostPool): Promise<Source> {
  if (typeof source !== 'string') return { ...source, release: async () => {} };
  const { searchParams, href } = new URL(source);
  const schema = searchParams.get(SCHEMA) ?? DEFAULT_SCHEMA;
  const { default: pg } = await import('pg');
  const pool = new pg.Pool({
    connectionString: href,
    max: Number(searchParams.get(CONNECTIONS) ?? DEFAULT_CONNECTIONS),
    connectionTimeoutMillis: CALL_TIMEOUT_MS - 500,
    idleTimeoutMillis: IDLE_TIMEOUT_MS,
    keepAlive: true,
    fallback_application_name: 'saas-backend',
  });
  // The pool has removed the unused connection that was lost; the next call opens another one.
  pool.on('error', () => {});
  return { pool, schema, release: () => pool.end() };
}

/** A connection to MongoDB or PostgreSQL that belongs to a host application. */

import { isSchemaName, SCHEMA_RULE } from './postgresql/source.js';

/** The part of `fastify.mongo` in use, independent of the versions of @fastify/mongodb and the driver. */
export interface HostMongo {
  /** The client of the host. */
  client: { db(): object };
  /** The database; absent if the URI of the host names none. */
  db?: object;
}

/** A host's database, where collection names begin with `prefix`. */
export interface HostDatabase {
  mongo: HostMongo;
  prefix: string;
}

/** The part of `fastify.pg` in use, or a pool of the host, independent of the version of `pg`. */
export interface HostPostgres {
  /** A `Pool` of `pg`. */
  pool: { connect(callback: (error: Error | undefined, client: object | undefined) => void): void };
  /** The schema. Default: `saas` or `idp`. */
  schema?: string;
}

/** The pool of a host, and the schema of a store there. */
export type HostPool = Required<HostPostgres>;

/** The options for a connection of the host. */
export interface HostConnections {
  mongo?: HostMongo | undefined;
  pg?: HostPostgres | undefined;
}

/** A placeholder for the required `databaseUri` option when the host lends its connection; undefined if it lends none. */
export function hostDatabaseUri({ mongo, pg }: HostConnections): string | undefined {
  if (mongo) return 'mongodb://host.invalid/lent';
  return pg && 'postgres://host.invalid/lent';
}

/** The connection that the host lends, with the names of a product in it; undefined if it lends none. */
export function hostSource(
  { mongo, pg }: HostConnections,
  name: string,
): HostDatabase | HostPool | undefined {
  if (mongo) return { mongo, prefix: `${name}_` };
  return pg && { pool: pg.pool, schema: pg.schema ?? name };
}

/** Describes what is wrong with the options `mongo` and `pg`; null if they are valid or absent. */
export function hostDatabaseProblem(options: HostConnections & { databaseUri?: string }): string | null {
  // Undefined if the host registers the plugin too late; a fallback to SQLite would hide that.
  if ('mongo' in options && typeof options.mongo?.client?.db !== 'function')
    return "'mongo' is not a fastify.mongo. Register @fastify/mongodb first.";
  if ('pg' in options && typeof options.pg?.pool?.connect !== 'function')
    return "'pg' is neither a fastify.pg nor an object with the pool of the host. Register @fastify/postgres first.";
  const schema = options.pg?.schema;
  if (schema !== undefined && !isSchemaName(schema)) return `'pg.schema' ${SCHEMA_RULE}`;
  const [one, other] = (['mongo', 'pg', 'databaseUri'] as const).filter(
    (name) => options[name] !== undefined,
  );
  return other === undefined ? null : `'${one}' and '${other}' are both given. Pass only one of them.`;
}

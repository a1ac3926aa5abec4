/** A MongoDB connection that belongs to a host application. */

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

/** A placeholder for the required `databaseUri` option when `mongo` is given. */
export const HOST_DATABASE_URI = 'mongodb://host.invalid/lent';

/** Describes what is wrong with the `mongo` option; null if it is valid or absent. */
export function hostDatabaseProblem(options: { mongo?: HostMongo; databaseUri?: string }): string | null {
  if (!('mongo' in options)) return null;
  // Undefined if the host registers @fastify/mongodb too late; a fallback to SQLite would hide that.
  if (typeof options.mongo?.client?.db !== 'function') {
    return "'mongo' is not a fastify.mongo. Register @fastify/mongodb first.";
  }
  return options.databaseUri === undefined
    ? null
    : "'mongo' and 'databaseUri' are both given. Pass only one of them.";
}

/** A MongoDB connection that belongs to the application around us. */

/** What is used of `fastify.mongo`, whichever version of @fastify/mongodb or the driver has made it. */
export interface HostMongo {
  client: { db(): object };
  db?: object;
}

/** A host's database, in which the names of our collections begin with `prefix`. */
export interface HostDatabase {
  mongo: HostMongo;
  prefix: string;
}

/** Stands where an option wants the URI of a store and the host lends one. */
export const HOST_DATABASE_URI = 'mongodb://host.invalid/lent';

/** What is wrong with options that may lend a store; null: nothing. */
export function hostDatabaseProblem(options: { mongo?: HostMongo; databaseUri?: string }): string | null {
  if (!('mongo' in options)) return null;
  // The host registers @fastify/mongodb too late, and its users would be in a file of ours.
  if (typeof options.mongo?.client?.db !== 'function') {
    return "'mongo' is not a fastify.mongo. Register @fastify/mongodb first.";
  }
  return options.databaseUri === undefined
    ? null
    : "'mongo' and 'databaseUri' are both given. Pass only one of them.";
}

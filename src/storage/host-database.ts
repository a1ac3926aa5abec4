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

import mongodbPlugin, { type mongodb } from '@fastify/mongodb';
import type { HostMongo } from '../../src/core/storage/host-database.js';

const { MongoNetworkError } = mongodbPlugin.mongodb;

/** A host's connection that loses the response to a write, which takes effect. */
export interface LossyMongo {
  mongo: HostMongo;
  /** Loses the response to the n-th next update of a document in this collection; by default, the next one. */
  lose(collection: string, nth?: number): void;
}

export function lossyMongo(client: mongodb.MongoClient, uri: string): LossyMongo {
  const db = client.db(new URL(uri).pathname.slice(1));
  let losing = { collection: '', nth: 0 };

  const lossy = (collection: mongodb.Collection) =>
    override(collection, {
      async findOneAndUpdate(...args: Parameters<typeof collection.findOneAndUpdate>) {
        const isLost = losing.collection === collection.collectionName && --losing.nth === 0;
        const response = await collection.findOneAndUpdate(...args);
        if (isLost) throw new MongoNetworkError('connection closed');
        return response;
      },
    });
  return {
    mongo: {
      client,
      db: override(db, {
        collection: (...args: Parameters<typeof db.collection>) => lossy(db.collection(...args)),
      }),
    },
    lose(collection, nth = 1) {
      losing = { collection, nth };
    },
  };
}

/** The object with some of its methods replaced. */
function override<T extends object>(target: T, methods: object): T {
  return new Proxy(target, {
    get(_target, name) {
      const value: unknown = Reflect.get(name in methods ? methods : target, name);
      return typeof value === 'function' && !(name in methods) ? value.bind(target) : value;
    },
  });
}

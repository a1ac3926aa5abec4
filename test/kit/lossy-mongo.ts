import mongodbPlugin, { type mongodb } from '@fastify/mongodb';
import type { HostMongo } from '../../src/core/storage/host-database.js';

const { MongoNetworkError } = mongodbPlugin.mongodb;

/** A host's connection that loses the response to a write, which takes effect. */
export interface LossyMongo {
  mongo: HostMongo;
  /** Loses the response to the next commit that changes a document of this collection. */
  lose(collection: string): void;
}

export function lossyMongo(client: mongodb.MongoClient, uri: string): LossyMongo {
  const db = client.db(new URL(uri).pathname.slice(1));
  let losing: string | undefined;
  const lost = new WeakSet<mongodb.ClientSession>();

  const lossy = (collection: mongodb.Collection) =>
    override(collection, {
      updateOne(...args: Parameters<typeof collection.updateOne>) {
        const session = args[2]?.session;
        if (session && losing === collection.collectionName) {
          losing = undefined;
          lost.add(session);
        }
        return collection.updateOne(...args);
      },
    });
  const lossyClient = override(client, {
    withSession: (run: (session: mongodb.ClientSession) => Promise<unknown>) =>
      client.withSession(async (session) => {
        const outcome = await run(session);
        if (lost.has(session)) throw new MongoNetworkError('connection closed');
        return outcome;
      }),
  });
  return {
    mongo: {
      client,
      db: override(db, {
        client: lossyClient,
        collection: (...args: Parameters<typeof db.collection>) => lossy(db.collection(...args)),
      }),
    },
    lose(collection) {
      losing = collection;
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

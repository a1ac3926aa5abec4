/** What each engine tells about a large store. */
import { statSync } from 'node:fs';
import mongodbPlugin from '@fastify/mongodb';
import type { Result } from './report.js';
import { onPostgresql } from './servers.js';

const bytes = (what: string, value: number): Result => ({ what, value, unit: 'bytes' });

/** Bytes per document on disk. @param counts the number of documents of each collection */
export async function sizesOf(uri: string, counts: Record<string, number>): Promise<Result[]> {
  if (uri.startsWith('sqlite:')) {
    const all = Object.values(counts).reduce((sum, count) => sum + count, 0);
    return [bytes('a document of the file takes', statSync(uri.slice('sqlite:'.length)).size / all)];
  }
  const found: Result[] = [];
  for (const [name, count] of Object.entries(counts)) {
    const { table, indexes } = await (uri.startsWith('mongodb') ? ofMongodb : ofPostgresql)(uri, name);
    found.push(
      bytes(`${name}: a document on disk`, table / count),
      bytes(`${name}: … in the indexes`, indexes / count),
    );
  }
  return found;
}

interface Size {
  table: number;
  indexes: number;
}

async function ofPostgresql(uri: string, name: string): Promise<Size> {
  const schema = new URL(uri).searchParams.get('schema') ?? 'public';
  const table = `'"${schema}"."${name}"'`;
  const text = `SELECT pg_table_size(${table}) AS "table", pg_indexes_size(${table}) AS indexes`;
  const [size] = await onPostgresql(uri, [text]);
  return { table: Number(size?.['table']), indexes: Number(size?.['indexes']) };
}

async function ofMongodb(uri: string, name: string): Promise<Size> {
  return onMongodb(uri, async (client) => {
    // Writes everything to the files.
    await client.db('admin').command({ fsync: 1 });
    const { storageSize, totalIndexSize } = await client.db().command({ collStats: name });
    return { table: storageSize, indexes: totalIndexSize };
  });
}

/** The connections to a database server, with the one that asks. */
export async function connectionsOf(uri: string): Promise<Result[]> {
  if (uri.startsWith('sqlite:')) return [];
  const value = await (uri.startsWith('mongodb') ? connectionsOfMongodb : connectionsOfPostgresql)(uri);
  return [{ what: 'connections to the server, with this one', value, unit: '' }];
}

async function connectionsOfPostgresql(uri: string): Promise<number> {
  const text = "SELECT count(*) AS n FROM pg_stat_activity WHERE backend_type = 'client backend'";
  const [row] = await onPostgresql(uri, [text]);
  return Number(row?.['n']);
}

function connectionsOfMongodb(uri: string): Promise<number> {
  return onMongodb(uri, async (client) => {
    const { connections } = await client.db('admin').command({ serverStatus: 1 });
    return connections.current;
  });
}

async function onMongodb<R>(
  uri: string,
  step: (client: InstanceType<typeof mongodbPlugin.mongodb.MongoClient>) => Promise<R>,
): Promise<R> {
  const client = await new mongodbPlugin.mongodb.MongoClient(uri).connect();
  try {
    return await step(client);
  } finally {
    await client.close();
  }
}

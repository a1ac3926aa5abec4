import { createHash } from 'node:crypto';
import { join } from 'node:path';
import pg from 'pg';
import { readRows } from './sqlite.js';

/** Whether tests on this engine run: TEST_ENGINES names some, separated by commas. */
export const isTested = (engine: 'sqlite' | 'mongodb' | 'postgresql'): boolean =>
  process.env['TEST_ENGINES']?.split(',').includes(engine) ?? true;

/** For tests that read or damage the file of a product's store. */
export const ON_FILE = { skip: isTested('sqlite') ? false : 'the store is no file' };

/**
 * The store of a product that belongs to a folder: a file there, or if TEST_ENGINES is without SQLite a schema of the PostgreSQL
 * server that `test/run.mjs` has started.
 */
export function storeIn(folder: string, product: 'saas' | 'idp'): string {
  if (isTested('sqlite')) return `sqlite:${join(folder, `${product}.db`)}`;
  const uri = process.env['TEST_POSTGRESQL_URI'] ?? process.env['SHARED_POSTGRESQL_URI'];
  if (!uri) throw new Error('There is no PostgreSQL server: run the file by test/run.mjs.');
  const name = createHash('sha256').update(folder).digest('hex').slice(0, 20);
  return `${uri}?schema=${product}_${name}&connection_limit=4`;
}

/** The ids of a collection in the order in which its documents were inserted, none of which was deleted. */
export async function idsAsInserted(uri: string, collection: string): Promise<string[]> {
  const order = (table: string, place: string) => `SELECT id FROM ${table} ORDER BY ${place}`;
  if (uri.startsWith('sqlite:'))
    return readRows<{ id: string }>(uri.slice('sqlite:'.length), order(collection, 'rowid')).map(
      ({ id }) => id,
    );
  const client = new pg.Client(uri);
  await client.connect();
  const table = `${new URL(uri).searchParams.get('schema')}.${collection}`;
  const { rows } = await client.query<{ id: string }>(order(table, 'ctid')).finally(() => client.end());
  return rows.map(({ id }) => id);
}

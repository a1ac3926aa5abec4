import { createHash } from 'node:crypto';
import { join } from 'node:path';

/**
 * The store of a product that belongs to a folder: a file there, or with TEST_ENGINES=postgresql a schema of the server that
 * `test/run.mjs` has started.
 */
export function storeIn(folder: string, product: 'saas' | 'idp'): string {
  if (process.env['TEST_ENGINES'] !== 'postgresql') return `sqlite:${join(folder, `${product}.db`)}`;
  const uri = process.env['TEST_POSTGRESQL_URI'] ?? process.env['SHARED_POSTGRESQL_URI'];
  if (!uri) throw new Error('There is no PostgreSQL server: run the file by test/run.mjs.');
  const name = createHash('sha256').update(folder).digest('hex').slice(0, 20);
  return `${uri}?schema=${product}_${name}&connection_limit=4`;
}

import { DatabaseSync } from '@photostructure/sqlite';

/** Every row that a query finds in the file of a store, which other connections may be using. */
export function readRows<T>(file: string, query: string): T[] {
  const database = new DatabaseSync(file, { readOnly: true });
  try {
    return database.prepare(query).all() as T[];
  } finally {
    database.close();
  }
}

/** The names of all collections in the file of a store. */
export function collectionsOf(file: string): string[] {
  const tables =
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' AND name NOT LIKE '% %' ORDER BY name";
  return readRows<{ name: string }>(file, tables).map(({ name }) => name);
}

/** How many documents each collection in the file of a store holds. */
export function countDocuments(file: string): Map<string, number> {
  const countOf = (name: string) =>
    readRows<{ count: number }>(file, `SELECT count(*) AS count FROM "${name}"`)[0]?.count ?? 0;
  return new Map(collectionsOf(file).map((name) => [name, countOf(name)]));
}

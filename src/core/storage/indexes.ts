import type { Shape } from './checks.js';

/** An index of a collection in a SQL database. */
export interface Index {
  name: string;
  isUnique: boolean;
  fields: string[];
}

/** Field and collection names contain no dot or space, so these index names are unambiguous. */
export function indexesOf({ name, unique, indexes }: Shape): Index[] {
  return [
    ...unique.map((field) => ({ name: `${name}.${field} unique`, isUnique: true, fields: [field] })),
    // With the id at the end, the index has the order of `page`.
    ...indexes.map((fields) => ({
      name: `${name}.${fields.join('.')}`,
      isUnique: false,
      fields: [...new Set([...fields, 'id'])],
    })),
  ];
}

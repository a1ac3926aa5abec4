import type { TObject } from 'typebox';
import type { Annotated } from './options.js';

/** One option as the documentation and `.env.example` show it. */
export interface OptionRow {
  name: string;
  env: string;
  doc: string;
  default: string;
  secret: boolean;
}

/** The rows of a schema, in its order. */
export function describeOptions(schema: TObject): OptionRow[] {
  return (Object.entries(schema.properties) as unknown as [string, Annotated][]).map(([name, property]) => ({
    name,
    env: property.option.env,
    doc: property.option.doc,
    default: shownDefault(property),
    secret: property.option.secret === true,
  }));
}

function shownDefault({ option: { shown, development }, default: always }: Annotated): string {
  if (shown !== undefined) return shown;
  return development === undefined ? String(always ?? '') : `${development} outside production`;
}

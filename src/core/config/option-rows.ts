import type { TObject } from 'typebox';
import { type Annotated, isFromFile, optionsIn } from './options.js';

/** One option in the documentation and `.env.example`. */
export interface OptionRow {
  name: string;
  env: string;
  /** Read when `env` is unset. */
  fallbackEnv?: string;
  doc: string;
  default: string;
  secret: boolean;
  /** Whether `<env>_FILE` may name a file that contains it. */
  file: boolean;
}

/** The options of a schema, in its order. */
export function describeOptions(schema: TObject): OptionRow[] {
  return optionsIn(schema).map(([name, property]) => ({
    name,
    env: property.option.env,
    ...(property.option.fallbackEnv && { fallbackEnv: property.option.fallbackEnv }),
    doc: property.option.doc,
    default: shownDefault(property),
    secret: property.option.secret === true,
    file: isFromFile(property.option),
  }));
}

function shownDefault({ option: { shown, development, required }, default: always }: Annotated): string {
  const derived = development === undefined ? String(always ?? '') : `${development} outside production`;
  return (shown ?? derived) + (required === 'production' ? ', required in production' : '');
}

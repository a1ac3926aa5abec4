import { BUILT_IN_FOLDER, readSentences } from '../../src/core/http/sentences.js';

const english = readSentences(BUILT_IN_FOLDER, 'en');

/** A value of a sentence, and a part that depends on one. */
const VALUE = /\{\{[#^].*?\{\{\/.*?\}\}|\{\{.*?\}\}/;

/**
 * Matches a sentence of `templates/messages/en.json` in a page or mail, with the given values and any others: a test that names
 * its key does not fail when its words improve.
 */
export function sentence(key: string, values: Readonly<Record<string, string>> = {}): RegExp {
  const text = english[key];
  if (text === undefined) throw new Error(`There is no sentence '${key}'.`);
  const known = text.replaceAll(/\{\{(\w+)\}\}/g, (value, name) => values[name] ?? value);
  const parts = known.split(VALUE).map((part) => part.replaceAll(/[\\^$.|?+*()[\]{}]/g, '\\$&'));
  return new RegExp(parts.join('.*?'));
}

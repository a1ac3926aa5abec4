import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import mustache from 'mustache';
import { packageFile } from '../kernel/package-files.js';
import { suggestion, withoutByteOrderMark } from '../kernel/text.js';

/** The files of the message catalogue: `<locale>.json` in `templates/messages` and in an operator's folder. */

/** Sentences by their keys: `sign-in.title` → `Sign in`. */
export type Sentences = Readonly<Record<string, string>>;

/** The locale whose sentences are complete, and from which the others take what they lack. */
export const FALLBACK_LOCALE = 'en';

export const BUILT_IN_FOLDER = packageFile('templates/messages');

const EXTENSION = '.json';

/** The locales of the files in a folder. */
export function localesIn(folder: string): string[] {
  const files = readdirSync(folder).filter((file) => file.endsWith(EXTENSION));
  return files.map((file) => file.slice(0, -EXTENSION.length));
}

/** The sentences of one file; none if it does not exist. */
export function readSentences(folder: string, locale: string): Sentences {
  const file = join(folder, locale + EXTENSION);
  if (!statSync(file, { throwIfNoEntry: false })) return {};
  return flatten(JSON.parse(withoutByteOrderMark(readFileSync(file, 'utf8'))));
}

/** `{ 'sign-in': { title: 'Sign in' } }` → `{ 'sign-in.title': 'Sign in' }` */
function flatten(tree: object, prefix = ''): Sentences {
  const entries = Object.entries(tree).flatMap(([name, value]): [string, string][] =>
    typeof value === 'object' && value !== null
      ? Object.entries(flatten(value, `${prefix}${name}.`))
      : [[prefix + name, value]],
  );
  return Object.fromEntries(entries);
}

/** Validates an operator's folder. Returns all problems as the end of a sentence. */
export function messagesProblem(folder: string): string | undefined {
  if (!statSync(folder, { throwIfNoEntry: false })?.isDirectory()) return 'is not a folder.';
  const english = readSentences(BUILT_IN_FOLDER, FALLBACK_LOCALE);
  const problems = localesIn(folder).flatMap((locale) =>
    problemsOfFile(folder, locale, english).map((problem) => `${locale}${EXTENSION} ${problem}`),
  );
  return problems.length === 0 ? undefined : `contains broken messages: ${problems.join('; ')}.`;
}

function problemsOfFile(folder: string, locale: string, english: Sentences): string[] {
  if (!isLocale(locale)) return ['is not named after a locale, like de.json or pt-BR.json'];
  try {
    return Object.entries(readSentences(folder, locale)).flatMap(
      ([key, text]) => sentenceProblem(key, text, english) ?? [],
    );
  } catch (error) {
    return [`cannot be used (${(error as Error).message})`];
  }
}

/** Whether a text is a language tag in its canonical form, whose dates and numbers are known. */
export function isLocale(text: string): boolean {
  // `Intl` loads its data on first use, which would delay the start of every server in English.
  if (text === FALLBACK_LOCALE) return true;
  try {
    return Intl.DateTimeFormat.supportedLocalesOf(text).includes(text);
  } catch {
    return false;
  }
}

/** Describes why a sentence cannot replace or translate the English one of the same key. */
function sentenceProblem(key: string, text: unknown, english: Sentences): string | undefined {
  const original = english[key];
  if (original === undefined) return `has the unknown key '${key}'.${suggestion(key, Object.keys(english))}`;
  if (typeof text !== 'string' || text.trim() === '') return `has no text for '${key}'`;
  try {
    const known = valuesIn(original);
    const foreign = valuesIn(text).find((value) => !known.includes(value));
    return foreign && `uses {{${foreign}}} in '${key}', which the English sentence does not`;
  } catch (error) {
    return `cannot use '${key}' (${(error as Error).message})`;
  }
}

/** A token of Mustache; a section contains tokens. */
type Token = [kind: string, name: string, start: number, end: number, children?: Token[]];

/** The values and sections that a sentence uses, sorted: `['#plan', 'plan']`. @throws if it does not parse */
export function valuesIn(sentence: string): string[] {
  const collect = (tokens: Token[]): string[] =>
    tokens.flatMap(([kind, name, , , children]) => [
      ...(kind === 'text' ? [] : [kind === 'name' ? name : kind + name]),
      ...(Array.isArray(children) ? collect(children) : []),
    ]);
  return [...new Set(collect(mustache.parse(sentence) as Token[]))].sort();
}

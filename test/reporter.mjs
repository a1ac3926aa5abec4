// What `npm test` prints, on a terminal and in a file: a line for each test process, failures with their reason, and
// the number of passed tests.
import { readdirSync, readFileSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { Transform } from 'node:stream';
import { inspect, stripVTControlCharacters, styleText } from 'node:util';
import { Parser } from 'tap-parser';

const isTerminal = process.stdout.isTTY && !process.env.NO_COLOR;
const paint = (style, text) => (isTerminal ? styleText(style, text) : text);

/** Removes what a terminal or a file cannot show. */
const printable = (text) =>
  stripVTControlCharacters(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, '\u{fffd}');

const indented = (text) => printable(text).trimEnd().replace(/^/gm, '    ');

/** Longest text of one failure: some tests compare documents of megabytes. */
const MOST_SHOWN = 5000;

/**
 * The sources of a process's test files, whose compiled files are its name (`test/run.mjs`): "test/oidc: login, tokens;
 * test/ops: jobs".
 */
function sourcesOf(name) {
  const sources = name.split(' ').map((file) => file.replace(/^dist\/(.*)\.js$/, '$1.ts'));
  if (sources.length === 1) return sources[0];
  const folders = new Map();
  for (const source of sources)
    folders.set(dirname(source), [...(folders.get(dirname(source)) ?? []), basename(source, '.test.ts')]);
  return [...folders].map(([folder, names]) => `${folder}: ${names.join(', ')}`).join('; ');
}

function explanationOf({ diag }) {
  const details = diag ?? {};
  const { message, diff, found, wanted, at, stack, reason, exitCode, signal, cause } = details;
  const parts = [
    message,
    cause?.message && `because of: ${[cause.code, cause.message].filter(Boolean).join(' ')}`,
    reason,
    diff,
  ];
  if (exitCode) parts.push(`ended with exit code ${exitCode}`);
  if (signal) parts.push(`ended by ${signal}`);
  if (!diff && 'wanted' in details) parts.push(`wanted ${inspect(wanted)}`, `found ${inspect(found)}`);
  if (at?.fileName) parts.push(`at ${at.fileName}:${at.lineNumber}`);
  else if (typeof stack === 'string') parts.push(stack);
  const text = parts.filter((part) => typeof part === 'string' && part !== '').join('\n');
  return text.length > MOST_SHOWN
    ? `${text.slice(0, MOST_SHOWN)}\n… (${text.length} characters in all)`
    : text;
}

/** Tests skipped for lack of a dependency, and the remedy (test/kit/skip.ts). */
function omitted() {
  const folder = new URL('../dist/skipped/', import.meta.url);
  try {
    return readdirSync(folder).map((name) => readFileSync(new URL(name, folder), 'utf8'));
  } catch (error) {
    if (error.code === 'ENOENT') return [];
    throw error;
  }
}

export default class Reporter extends Transform {
  #parser = new Parser();
  #counts = { passed: 0, failed: 0, skipped: 0 };
  #failures = [];
  #startedAt = Date.now();

  constructor() {
    super({ decodeStrings: false, encoding: 'utf8' });
    this.#follow(this.#parser, []);
  }

  _transform(chunk, _encoding, done) {
    this.#parser.write(chunk);
    done();
  }

  _flush(done) {
    this.#parser.once('complete', () => {
      this.#summarise();
      done();
    });
    this.#parser.end();
  }

  /** Counts the results of a group with this path. Returns its number of failures, which grows while the group runs. */
  #follow(parser, names) {
    const here = { failed: 0 };
    let group;
    parser.on('child', (child) => {
      group = this.#follow(child, [...names, child.name]);
    });
    parser.on('assert', (result) => {
      const path = [...names, result.name];
      // A group that fails because of its tests has been reported already.
      const inGroup = group?.failed ?? 0;
      if (result.skip || result.todo) this.#counts.skipped++;
      else if (!result.ok && inGroup === 0) this.#fail(path, result);
      else if (result.ok && !group) this.#counts.passed++;
      here.failed += result.ok ? 0 : Math.max(1, inGroup);
      group = undefined;
      if (names.length === 0) this.#file(result);
    });
    return here;
  }

  #file({ ok, name, time }) {
    const mark = ok ? paint('green', 'ok    ') : paint('red', 'FAILED');
    const seconds = `${((time ?? 0) / 1000).toFixed(1)} s`;
    this.push(`${mark} ${seconds.padStart(8)}  ${sourcesOf(printable(name))}\n`);
  }

  #fail(names, result) {
    this.#counts.failed++;
    const [file = '', ...tests] = names.map(printable);
    const title = [sourcesOf(file), ...tests].join(' > ');
    this.#failures.push(title);
    this.push(`${paint('red', `not ok ${title}`)}\n${indented(explanationOf(result))}\n`);
  }

  #summarise() {
    const { passed, failed, skipped } = this.#counts;
    if (failed > 0) this.push(`\n${this.#failures.map((title) => `not ok ${title}\n`).join('')}`);
    for (const text of omitted()) this.push(`\n${text}`);
    const seconds = Math.round((Date.now() - this.#startedAt) / 1000);
    const rest = skipped > 0 ? `, ${skipped} skipped` : '';
    const summary = `${passed} passed, ${failed} failed${rest} (${seconds} s)`;
    this.push(`\n${paint(failed > 0 ? 'red' : 'green', summary)}\n`);
  }
}

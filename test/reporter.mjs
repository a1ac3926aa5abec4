// What `npm test` prints, on a terminal and in a file: a line for each test file, failures with their reason, the number of
// passed tests, and the command that repeats what failed.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { SourceMap } from 'node:module';
import { resolve } from 'node:path';
import { inspect, stripVTControlCharacters, styleText } from 'node:util';
import { Parser } from 'tap-parser';

/** Begins the name of the assertion with which `test/files.mjs` ends the output of a file. */
export const END = 'end of file ';

/** While no file ends, a line says which ones run. */
const SILENCE_MS = 9000;

const isTerminal = process.stdout.isTTY && !process.env.NO_COLOR;
const paint = (style, text) => (isTerminal ? styleText(style, text) : text);

/** Removes what a terminal or a file cannot show. */
const printable = (text) =>
  stripVTControlCharacters(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, '\u{fffd}');

const indented = (text) => printable(text).trimEnd().replace(/^/gm, '    ');

/** Longest text of one failure: some tests compare documents of megabytes. */
const MOST_SHOWN = 5000;

/** The source of a compiled file. */
const sourceOf = (file) => file.replace(/^dist\/(.*)\.js$/, '$1.ts');

/**
 * A position in a compiled file as one in its source. Node.js would do it for every error that is created, which takes an eighth
 * of the time of all tests.
 */
function inSource(text) {
  return text.replace(
    /(?:file:\/\/)?([^\s()]*\bdist\/[^\s():]+\.js):(\d+)(?::(\d+))?/g,
    (position, file, line, column = 1) => {
      const map = mapOf(file);
      const entry = map?.findEntry(Number(line) - 1, Number(column) - 1);
      if (entry?.originalLine === undefined) return position;
      return `${file.replace(/^.*\bdist\/(.*)\.js$/, '$1.ts')}:${entry.originalLine + 1}`;
    },
  );
}

const maps = new Map();

/** The source map of a compiled file; null if it has none. */
function mapOf(file) {
  if (!maps.has(file)) {
    const path = `${resolve(file)}.map`;
    maps.set(file, existsSync(path) ? new SourceMap(JSON.parse(readFileSync(path, 'utf8'))) : null);
  }
  return maps.get(file);
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
  if (at?.fileName) parts.push(`at ${at.fileName}:${at.lineNumber}:${at.columnNumber ?? 1}`);
  else if (typeof stack === 'string') parts.push(stack);
  const text = inSource(parts.filter((part) => typeof part === 'string' && part !== '').join('\n'));
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

/** Reports the files of several processes at the same time. */
export class Report {
  /** What `test/run.mjs` writes for other programs: `{ file, ok, seconds, processor, failures }`. */
  results = [];
  #counts = { passed: 0, failed: 0, skipped: 0 };
  #startedAt = Date.now();
  #running = new Set();
  #total;
  #print;
  #silence;

  constructor(total, print = (text) => process.stdout.write(text)) {
    this.#total = total;
    this.#print = (text) => {
      print(text);
      this.#silence?.refresh();
    };
    this.#silence = setInterval(() => this.#print(`        … ${this.#names()}\n`), SILENCE_MS).unref();
  }

  #names() {
    const running = [...this.#running].map(({ file, since }) => {
      const seconds = Math.round((Date.now() - since) / 1000);
      return `${sourceOf(file)} (${seconds} s)`;
    });
    return `${this.results.length} of ${this.#total} files; ${running.join(', ') || 'starting'}`;
  }

  /**
   * Reads the output of one process. `start(file)` names the file that it runs, `fail(reason)` reports what its output does not
   * say, `ended` resolves after its last line.
   *
   * @param {import('node:stream').Readable} stream
   */
  follow(stream) {
    const parser = new Parser();
    /** The next file can have been started before the last lines of this one are read. */
    const started = [];
    let failures = [];
    const fail = (names, explanation) => {
      this.#counts.failed++;
      const title = [sourceOf(started[0]?.file ?? 'test/run.mjs'), ...names.map(printable)].join(' > ');
      failures.push(title);
      this.#print(`${paint('red', `not ok ${title}`)}\n${indented(explanation)}\n`);
    };
    const finish = (figures) => {
      const running = started.shift();
      const result = { file: running.file, ok: failures.length === 0, failures, ...figures };
      this.#running.delete(running);
      this.results.push(result);
      failures = [];
      this.#printFile(result);
    };
    /** Counts the results of a group with this path. Returns its number of failures, which grows while the group runs. */
    const count = (parser, names) => {
      const here = { failed: 0 };
      let group;
      parser.on('child', (child) => {
        group = count(child, [...names, child.name]);
      });
      parser.on('assert', (result) => {
        // A group that fails because of its tests has been reported already.
        const inGroup = group?.failed ?? 0;
        const isGroup = group !== undefined;
        group = undefined;
        if (names.length === 0 && result.name.startsWith(END.trim())) {
          const figures = result.name.slice(END.length);
          if (figures) {
            const { ms, processor } = JSON.parse(figures);
            finish({ seconds: ms / 1000, processor });
          }
          return;
        }
        if (result.skip || result.todo) this.#counts.skipped++;
        else if (!result.ok && inGroup === 0) fail([...names, result.name], explanationOf(result));
        else if (result.ok && !isGroup) this.#counts.passed++;
        here.failed += result.ok ? 0 : Math.max(1, inGroup);
      });
      return here;
    };
    count(parser, []);
    const ended = new Promise((resolve) => {
      parser.on('complete', resolve);
    });
    stream.pipe(parser);
    return {
      ended,
      start: (file) => {
        const running = { file, since: Date.now() };
        started.push(running);
        this.#running.add(running);
      },
      fail: (reason, details = '') => {
        fail([reason], details);
        if (started.length > 0) finish({ seconds: (Date.now() - started[0].since) / 1000 });
      },
    };
  }

  #printFile({ ok, file, seconds }) {
    const mark = ok ? paint('green', 'ok    ') : paint('red', 'FAILED');
    this.#print(`${mark} ${`${seconds.toFixed(1)} s`.padStart(8)}  ${sourceOf(file)}\n`);
  }

  /** Prints what failed, the command that repeats it, and the totals. */
  summarize() {
    clearInterval(this.#silence);
    const { passed, failed, skipped } = this.#counts;
    const broken = this.results.filter(({ ok }) => !ok);
    if (failed > 0) this.#print('\n');
    for (const { failures } of broken) this.#print(failures.map((title) => `not ok ${title}\n`).join(''));
    if (broken.length > 0)
      this.#print(
        `\nTo repeat what failed: npm run build && node test/run.mjs ${broken.map(({ file }) => file).join(' ')}\n`,
      );
    for (const text of omitted()) this.#print(`\n${text}`);
    const seconds = Math.round((Date.now() - this.#startedAt) / 1000);
    const rest = skipped > 0 ? `, ${skipped} skipped` : '';
    const summary = `${passed} passed, ${failed} failed${rest} (${seconds} s)`;
    this.#print(`\n${paint(failed > 0 ? 'red' : 'green', summary)}\n`);
    return { failed, results: this.results };
  }
}
